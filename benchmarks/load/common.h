/* What the mock engine and the load client share. Linux: epoll and timerfd. */
#ifndef COMMON_H
#define COMMON_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define NEVER UINT64_MAX
#define EVENTS_AT_ONCE 512

/* Stands before the sequence number and the clock inside each event; a proxy may write the JSON anew around it. */
#define MARK "@seq:"

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static inline unsigned long long own_cpu_us(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (unsigned long long)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000ull +
           (unsigned long long)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static inline void *allocate(size_t size) {
    void *memory = calloc(1, size);
    if (!memory)
        die("out of memory");
    return memory;
}

static inline void set_watch(int epoll, int operation, int fd, uint32_t events, void *owner) {
    struct epoll_event event = {.events = events, .data.ptr = owner};
    if (epoll_ctl(epoll, operation, fd, &event) < 0)
        die("epoll_ctl: %s", strerror(errno));
}

/* Wakes the loop at an absolute time; setting it again also clears an expiry not yet seen, so it is never read. */
static inline void wake_at(int timer, uint64_t due) {
    struct itimerspec when = {0};
    if (due != NEVER) {
        when.it_value.tv_sec = (time_t)(due / SECOND);
        when.it_value.tv_nsec = (long)(due % SECOND) + (due == 0);
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static inline void no_delay(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static inline struct sockaddr_in loopback(unsigned port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

#endif
