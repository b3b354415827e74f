/* The load: one thread, keep-alive connections to 127.0.0.1, chat requests of some 1.05 kB.
 *
 *   load_client closed  port=P connections=16 seconds=3           the next request when the answer is whole
 *   load_client open    port=P rate=100 seconds=5                 at fixed times, whatever the answers do
 *   load_client streams port=P streams=250 chunks=100 rate=20     each stream on a connection of its own
 *
 * Further: warmup_ms (closed, open: requests due earlier leave no latency), spread_ms (streams: start them over this
 * time), limit_ms (streams: give up). A line on standard input is answered with a line of counters, its end stops the
 * load. The last line is the result, JSON too. In streams mode the line "flowing" says that each has its first event.
 * Latency is counted from the time a request was due, the delay of an event from the clock inside it.
 */
#include "chat_request.h"
#include "common.h"
#include "histogram.h"

enum { KEEP_BYTES = 4096, READ_BYTES = 262144 };
enum mode { CLOSED, OPEN, STREAMS };
enum phase { HEAD, SIZED, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER };

struct connection {
    int fd;
    bool connecting, busy;
    uint64_t due;                 /* when the request was to go out */
    enum phase phase;
    int status;
    unsigned long long left;      /* bytes of the sized body or of the chunk */
    size_t kept;                  /* bytes in `keep`: the head, or a line that is not whole yet */
    unsigned next;                /* number of the event that must come next */
    bool in_order, marked_done;
    struct connection *next_idle;
    char keep[KEEP_BYTES];
};

static enum mode mode;
static unsigned port, wanted_connections = 16, streams = 1, chunks_each = 16;
static double rate = 20, seconds = 1;
static uint64_t warmup = 0, spread = 0, limit = 60 * SECOND;
static int poller, timer;
static uint64_t began;
static unsigned long long sent, answered, failed, opened, started, complete, disordered, flowing, live, received;
static struct histogram latency, delay;
static struct connection *idle;
static char request[4096], *request_number;
static size_t request_bytes;
static bool stopping;

/* ---- a connection's life ---- */

static void drop(struct connection *c) {
    if (c->busy)
        live--;
    for (struct connection **link = &idle; *link && !c->busy; link = &(*link)->next_idle)
        if (*link == c) {
            *link = c->next_idle;
            break;
        }
    close(c->fd);
    free(c);
}

static void fail(struct connection *c) {
    if (c->busy)
        failed++;
    drop(c);
}

static void ask(struct connection *c) {
    char digits[16];
    snprintf(digits, sizeof digits, "%010llu", sent++ % 10000000000ull);
    memcpy(request_number, digits, 10);
    c->phase = HEAD;
    c->kept = 0;
    c->next = 0;
    c->in_order = true;
    c->marked_done = false;
    if (send(c->fd, request, request_bytes, MSG_NOSIGNAL) != (ssize_t)request_bytes)
        shutdown(c->fd, SHUT_RDWR); /* the reading side then sees its end and counts the failure */
}

static void begin(struct connection *c, uint64_t due) {
    c->busy = true;
    c->due = due;
    live++;
    started++;
    if (!c->connecting) /* else it asks once it is connected */
        ask(c);
}

static struct connection *dial(void) {
    struct connection *c = allocate(sizeof *c);
    struct sockaddr_in address = loopback(port);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("load client: socket: %s", strerror(errno));
    no_delay(c->fd);
    c->connecting = true;
    opened++;
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
        die("load client: connect: %s", strerror(errno));
    set_watch(poller, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLOUT, c);
    return c;
}

/* The answer is whole. */
static void close_answer(struct connection *c, uint64_t now) {
    answered++;
    if (c->status != 200)
        failed++;
    if (mode != STREAMS && c->due >= began + warmup)
        note(&latency, now - c->due);
    if (mode == STREAMS) {
        if (c->status == 200 && c->in_order && c->marked_done && c->next == chunks_each)
            complete++;
        else
            disordered++;
        drop(c);
        return;
    }
    c->busy = false;
    live--;
    if (mode == CLOSED && !stopping) {
        begin(c, now);
        return;
    }
    c->next_idle = idle;
    idle = c;
}

/* ---- reading an answer ---- */

static void read_line(struct connection *c, uint64_t now) {
    char *mark;
    if (!strncmp(c->keep, "data: [DONE]", 12)) {
        c->marked_done = true;
    } else if ((mark = strstr(c->keep, MARK))) {
        char *rest;
        unsigned long number = strtoul(mark + sizeof MARK - 1, &rest, 10);
        uint64_t then = *rest == ':' ? strtoull(rest + 1, NULL, 10) : now;
        if (number != c->next || c->marked_done)
            c->in_order = false;
        if (c->next++ == 0 && ++flowing == streams) {
            puts("flowing");
            fflush(stdout);
        }
        received++;
        note(&delay, now > then ? now - then : 0);
    }
}

static void read_body(struct connection *c, const char *bytes, size_t size, uint64_t now) {
    while (mode == STREAMS && size) {
        const char *end = memchr(bytes, '\n', size);
        size_t piece = end ? (size_t)(end - bytes) + 1 : size;
        if (c->kept + piece >= KEEP_BYTES)
            die("load client: an event line is too long");
        memcpy(c->keep + c->kept, bytes, piece);
        c->kept += piece;
        bytes += piece;
        size -= piece;
        if (end) {
            c->keep[c->kept] = 0;
            c->kept = 0;
            read_line(c, now);
        }
    }
}

/* Parses the head once its end is there. Returns the bytes of this piece that belong to it, or -1: refused. */
static ssize_t read_head(struct connection *c, const char *bytes, size_t size) {
    size_t before = c->kept, piece = size < KEEP_BYTES - 1 - before ? size : KEEP_BYTES - 1 - before;
    memcpy(c->keep + before, bytes, piece);
    c->keep[before + piece] = 0;
    char *end = strstr(c->keep, "\r\n\r\n");
    if (!end) {
        c->kept += piece;
        return c->kept == KEEP_BYTES - 1 ? -1 : (ssize_t)piece;
    }
    end[2] = 0;
    const char *length = strcasestr(c->keep, "\r\ncontent-length:");
    c->status = atoi(c->keep + sizeof "HTTP/1.1");
    if (length) {
        c->phase = SIZED;
        c->left = strtoull(length + 17, NULL, 10);
    } else if (strcasestr(c->keep, "\r\ntransfer-encoding: chunked")) {
        c->phase = CHUNK_SIZE;
        c->left = 0;
    } else {
        return -1;
    }
    c->kept = 0;
    return end + 4 - c->keep - (ssize_t)before;
}

static int hexadecimal(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static void read_answer(struct connection *c, const char *bytes, size_t size, uint64_t now) {
    while (size) {
        if (!c->busy) { /* nothing was asked */
            fail(c);
            return;
        }
        size_t used = 1;
        bool whole = false;
        switch (c->phase) {
        case HEAD: {
            ssize_t taken = read_head(c, bytes, size);
            if (taken < 0) {
                fail(c);
                return;
            }
            used = (size_t)taken;
            whole = c->phase == SIZED && c->left == 0;
            if (c->phase != HEAD && mode == STREAMS)
                note(&latency, now - c->due);
            break;
        }
        case SIZED:
        case CHUNK:
            used = size < c->left ? size : (size_t)c->left;
            read_body(c, bytes, used, now);
            c->left -= used;
            whole = !c->left && c->phase == SIZED;
            if (!c->left)
                c->phase = CHUNK_END;
            break;
        case CHUNK_SIZE:
            if (hexadecimal(*bytes) >= 0)
                c->left = c->left * 16 + (unsigned)hexadecimal(*bytes);
            else if (*bytes == '\n')
                c->phase = c->left ? CHUNK : TRAILER;
            break;
        case CHUNK_END:
            if (*bytes == '\n') {
                c->phase = CHUNK_SIZE;
                c->left = 0;
            }
            break;
        case TRAILER: /* no proxy here sends trailers: an empty line */
            whole = *bytes == '\n';
            break;
        }
        bytes += used;
        size -= used;
        if (whole) {
            close_answer(c, now);
            if (mode == STREAMS)
                return;
        }
    }
}

static void attend(struct connection *c, uint32_t events) {
    static char bytes[READ_BYTES];
    int error = 0;
    socklen_t size = sizeof error;
    if (c->connecting && events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) {
            fail(c);
            return;
        }
        c->connecting = false;
        set_watch(poller, EPOLL_CTL_MOD, c->fd, EPOLLIN, c);
        ask(c);
        return;
    }
    ssize_t got = recv(c->fd, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got > 0) {
        read_answer(c, bytes, (size_t)got, now_ns());
        return;
    }
    fail(c);
}

/* ---- the load ---- */

/* Starts what is due; returns when to look again. */
static uint64_t drive(uint64_t now) {
    if (mode == CLOSED) {
        while (!stopping && live < wanted_connections)
            begin(dial(), now);
        return began + (uint64_t)(seconds * 1e9);
    }
    double gap = mode == OPEN ? 1e9 / rate : (double)spread / streams;
    unsigned long long all = mode == OPEN ? (unsigned long long)(seconds * rate) : streams;
    for (uint64_t due; started < all && !stopping;) {
        if ((due = began + (uint64_t)((double)started * gap)) > now)
            return due;
        struct connection *c = mode == OPEN ? idle : NULL;
        if (c)
            idle = c->next_idle;
        begin(c ? c : dial(), due);
    }
    return mode == OPEN ? began + (uint64_t)(seconds * 1e9) : NEVER;
}

static bool over(uint64_t now) {
    if (mode == STREAMS)
        return stopping || now >= began + limit || (started == streams && !live);
    if (now >= began + (uint64_t)(seconds * 1e9))
        stopping = true;
    return stopping && (!live || now >= began + (uint64_t)(seconds * 1e9) + 5 * SECOND);
}

static void tell_counters(void) {
    printf("{\"requests\":%llu,\"chunks\":%llu,\"failed\":%llu}\n", answered, received, failed);
    fflush(stdout);
}

static void tell_result(double took) {
    printf("{\"requests\":%llu,\"failed\":%llu,\"unanswered\":%llu,\"connections\":%llu,\"seconds\":%.3f,"
           "\"complete\":%llu,\"disordered\":%llu,\"chunks\":%llu,\"latency_p50_us\":%.1f,\"latency_p99_us\":%.1f,"
           "\"latency_max_us\":%.1f,\"delay_p50_us\":%.1f,\"delay_p99_us\":%.1f,\"delay_max_us\":%.1f,"
           "\"cpu_us\":%llu}\n",
           answered, failed, live, opened, took, complete, disordered, received, percentile_us(&latency, 0.5),
           percentile_us(&latency, 0.99), (double)latency.most / 1e3, percentile_us(&delay, 0.5),
           percentile_us(&delay, 0.99), (double)delay.most / 1e3, own_cpu_us());
}

static void read_options(int count, char **options) {
    if (count > 1 && !strcmp(options[1], "closed"))
        mode = CLOSED;
    else if (count > 1 && !strcmp(options[1], "open"))
        mode = OPEN;
    else if (count > 1 && !strcmp(options[1], "streams"))
        mode = STREAMS;
    else
        die("load client: closed, open or streams");
    for (int i = 2; i < count; i++) {
        char *value = strchr(options[i], '=');
        double number = value ? atof(value + 1) : 0;
        if (!value)
            die("load client: %s is not name=value", options[i]);
        *value = 0;
        if (!strcmp(options[i], "port"))
            port = (unsigned)number;
        else if (!strcmp(options[i], "connections"))
            wanted_connections = (unsigned)number;
        else if (!strcmp(options[i], "streams"))
            streams = (unsigned)number;
        else if (!strcmp(options[i], "chunks"))
            chunks_each = (unsigned)number;
        else if (!strcmp(options[i], "rate"))
            rate = number;
        else if (!strcmp(options[i], "seconds"))
            seconds = number;
        else if (!strcmp(options[i], "warmup_ms"))
            warmup = (uint64_t)(number * 1e6);
        else if (!strcmp(options[i], "spread_ms"))
            spread = (uint64_t)(number * 1e6);
        else if (!strcmp(options[i], "limit_ms"))
            limit = (uint64_t)(number * 1e6);
        else
            die("load client: no option %s", options[i]);
    }
}

int main(int count, char **options) {
    static char input_tag, timer_tag;
    struct epoll_event events[EVENTS_AT_ONCE];
    read_options(count, options);
    request_bytes = compose_request(request, sizeof request, port, mode == STREAMS ? chunks_each : 128, mode == STREAMS,
                                    rate, &request_number);
    poller = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (poller < 0 || timer < 0)
        die("load client: %s", strerror(errno));
    set_watch(poller, EPOLL_CTL_ADD, timer, EPOLLIN, &timer_tag);
    set_watch(poller, EPOLL_CTL_ADD, STDIN_FILENO, EPOLLIN, &input_tag);
    began = now_ns();
    for (uint64_t now; !over(now = now_ns());) {
        uint64_t next = drive(now);
        if (mode == STREAMS && next > began + limit)
            next = began + limit;
        if (stopping)
            next = now + SECOND / 10;
        wake_at(timer, next);
        int ready = epoll_wait(poller, events, EVENTS_AT_ONCE, -1);
        if (ready < 0 && errno != EINTR)
            die("load client: epoll_wait: %s", strerror(errno));
        for (int i = 0; i < ready; i++) {
            char line[256];
            if (events[i].data.ptr == &timer_tag)
                continue;
            if (events[i].data.ptr != &input_tag)
                attend(events[i].data.ptr, events[i].events);
            else if (read(STDIN_FILENO, line, sizeof line) > 0)
                tell_counters();
            else {
                stopping = true;
                epoll_ctl(poller, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
            }
        }
    }
    tell_result((double)(now_ns() - began) / 1e9);
    return 0;
}
