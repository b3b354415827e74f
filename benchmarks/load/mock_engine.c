/* An engine that costs next to nothing: one thread, two ports, answers of fixed text.
 *
 *   POST, any path   a short JSON answer, or with "stream":true as many events as "max_tokens" says, one HTTP chunk
 *                    each, every one with its number and CLOCK_MONOTONIC in ns. Request headers steer it:
 *                      x-mock-rate: N    events a second (20)
 *                      x-mock-hold: N    after N events nothing more comes; 0: not even the head
 *   GET /health /metrics /v1/models      as vLLM answers them
 *   GET /mock/stats                      counters of this process
 *
 * Prints "ports A B" once it listens; ends when its standard input does, so that it never outlives its starter.
 */
#include "common.h"

enum { INPUT_BYTES = 16384, PORTS = 2, POSITIONS = 4 };

struct connection {
    int fd;
    int port;
    size_t have;           /* bytes in `input` */
    char *unsent;          /* what the socket did not take at once */
    size_t unsent_bytes, unsent_capacity;
    bool generates;        /* carried a POST at some time */
    bool answering;
    unsigned next, total, hold;
    uint64_t period, due;
    int place;             /* in the heap; -1: not there */
    char input[INPUT_BYTES];
};

static int poller, timer;
static int listeners[PORTS];
static struct connection **heap;
static int heap_size, heap_capacity;
static unsigned long long connections, generating_connections, requests, chunks, aborted, last_abort_ns;
static int running[PORTS];
static unsigned long long tokens[PORTS];

/* ---- the heap of streams by the time of their next event ---- */

static void put(int place, struct connection *c) {
    heap[place] = c;
    c->place = place;
}

static void sift_up(int place) {
    struct connection *c = heap[place];
    for (int parent; place > 0 && heap[parent = (place - 1) / 2]->due > c->due; place = parent)
        put(place, heap[parent]);
    put(place, c);
}

static void sift_down(int place) {
    struct connection *c = heap[place];
    for (int child; (child = 2 * place + 1) < heap_size; place = child) {
        if (child + 1 < heap_size && heap[child + 1]->due < heap[child]->due)
            child++;
        if (heap[child]->due >= c->due)
            break;
        put(place, heap[child]);
    }
    put(place, c);
}

static void schedule(struct connection *c) {
    if (heap_size == heap_capacity) {
        heap_capacity = heap_capacity ? 2 * heap_capacity : 256;
        heap = realloc(heap, (size_t)heap_capacity * sizeof *heap);
        if (!heap)
            die("out of memory");
    }
    put(heap_size, c);
    sift_up(heap_size++);
}

static void unschedule(struct connection *c) {
    int place = c->place;
    if (place < 0)
        return;
    c->place = -1;
    struct connection *last = heap[--heap_size];
    if (last != c) {
        put(place, last);
        sift_up(place);
        sift_down(last->place);
    }
}

/* ---- writing ---- */

static void finish(struct connection *c) {
    c->answering = false;
    running[c->port]--;
}

static void hang_up(struct connection *c) {
    if (c->answering) {
        aborted++;
        last_abort_ns = now_ns();
        finish(c);
    }
    unschedule(c);
    close(c->fd);
    free(c->unsent);
    free(c);
}

/* A broken socket is not noticed here but by the reading side, which then closes it. */
static void say(struct connection *c, const char *bytes, size_t size) {
    if (!c->unsent_bytes) {
        ssize_t sent = send(c->fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return;
        if (sent > 0) {
            bytes += sent;
            size -= (size_t)sent;
        }
        if (!size)
            return;
        set_watch(poller, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLOUT, c);
    }
    if (c->unsent_bytes + size > c->unsent_capacity) {
        c->unsent_capacity = 2 * (c->unsent_bytes + size);
        c->unsent = realloc(c->unsent, c->unsent_capacity);
        if (!c->unsent)
            die("out of memory");
    }
    memcpy(c->unsent + c->unsent_bytes, bytes, size);
    c->unsent_bytes += size;
}

static void say_unsent(struct connection *c) {
    ssize_t sent = send(c->fd, c->unsent, c->unsent_bytes, MSG_NOSIGNAL);
    if (sent <= 0)
        return;
    c->unsent_bytes -= (size_t)sent;
    memmove(c->unsent, c->unsent + sent, c->unsent_bytes);
    if (!c->unsent_bytes)
        set_watch(poller, EPOLL_CTL_MOD, c->fd, EPOLLIN, c);
}

static void answer(struct connection *c, int status, const char *type, const char *body) {
    char out[8192];
    int size = snprintf(out, sizeof out, "HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n%s", status,
                        status == 200 ? "OK" : "Not Found", type, strlen(body), body);
    say(c, out, (size_t)size);
}

/* ---- events ---- */

static void emit(struct connection *c) {
    char event[512], out[640];
    if (c->next < c->total) {
        int size = snprintf(event, sizeof event,
                            "data: {\"id\":\"chatcmpl-5b0c7f3a9d1e4c26\",\"object\":\"chat.completion.chunk\","
                            "\"created\":1790000000,\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{"
                            "\"content\":\"" MARK "%010u:%020llu\"},\"logprobs\":null,\"finish_reason\":null,"
                            "\"token_ids\":null}]}\n\n",
                            c->next++, (unsigned long long)now_ns());
        size = snprintf(out, sizeof out, "%x\r\n%s\r\n", (unsigned)size, event);
        say(c, out, (size_t)size);
        chunks++;
        tokens[c->port]++;
    } else {
        static const char end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
        say(c, end, sizeof end - 1);
        finish(c);
    }
}

/* Puts the stream's next event on the clock, by its start and not by when the last one went out. */
static void go_on(struct connection *c) {
    unschedule(c);
    if (!c->answering || c->next >= c->hold)
        return;
    if (c->next < c->total)
        c->due += c->period;
    schedule(c);
}

static void emit_due(void) {
    uint64_t now = now_ns();
    while (heap_size && heap[0]->due <= now) {
        struct connection *c = heap[0];
        emit(c);
        go_on(c);
    }
}

static void start_stream(struct connection *c, unsigned rate) {
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                               "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
    static uint64_t spread;
    say(c, head, sizeof head - 1);
    c->period = SECOND / rate;
    /* Golden-ratio steps spread the streams evenly over a period however many there are. */
    spread += 11400714819323198485ull;
    c->due = now_ns() + (uint64_t)(((unsigned __int128)spread * c->period) >> 64);
    if (c->hold > 0)
        schedule(c);
}

/* ---- requests ---- */

static long number_after(const char *text, const char *name, long otherwise) {
    const char *found = strcasestr(text, name);
    return found ? strtol(found + strlen(name), NULL, 10) : otherwise;
}

static void generate(struct connection *c, const char *head, const char *body) {
    static const char text[] =
        "{\"id\":\"chatcmpl-5b0c7f3a9d1e4c26\",\"object\":\"chat.completion\",\"created\":1790000000,"
        "\"model\":\"bench\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
        "\"It closes at half past six.\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":231,\"total_tokens\":239,\"completion_tokens\":8}}";
    if (!c->generates) {
        c->generates = true;
        generating_connections++;
    }
    requests++;
    running[c->port]++;
    c->answering = true;
    c->next = 0;
    c->total = (unsigned)number_after(body, "\"max_tokens\":", 16);
    c->hold = (unsigned)number_after(head, "\r\nx-mock-hold:", -1); /* -1: as good as never */
    if (c->hold == 0)
        return;
    if (strstr(body, "\"stream\":true")) {
        long rate = number_after(head, "\r\nx-mock-rate:", 20);
        start_stream(c, rate > 0 ? (unsigned)rate : 1);
        return;
    }
    tokens[c->port] += 8;
    answer(c, 200, "application/json", text);
    finish(c);
}

static void tell_metrics(struct connection *c) {
    char page[6144];
    int p = c->port, n = 0;
    unsigned long long made = tokens[p], drafts = made / 3;
    const char *labels = "engine=\"0\",model_name=\"bench\"";
#define LINE(...) n += snprintf(page + n, sizeof page - (size_t)n, __VA_ARGS__)
    LINE("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{%s} %d\n", labels, running[p]);
    LINE("# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{%s} 0\n", labels);
    LINE("# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{%s} 0.25\n", labels);
    LINE("# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"16\",engine=\"0\"} 1\n");
    LINE("# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total{%s} %llu\n", labels, requests * 231);
    LINE("# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{%s} %llu\n", labels, made);
    if (p == 0) { /* the first port drafts, the second is a plain replica */
        LINE("# TYPE vllm:spec_decode_num_drafts counter\nvllm:spec_decode_num_drafts_total{%s} %llu\n", labels,
             drafts);
        LINE("# TYPE vllm:spec_decode_num_draft_tokens counter\nvllm:spec_decode_num_draft_tokens_total{%s} %llu\n",
             labels, POSITIONS * drafts);
        LINE("# TYPE vllm:spec_decode_num_accepted_tokens counter\n"
             "vllm:spec_decode_num_accepted_tokens_total{%s} %llu\n", labels, 2 * drafts);
        LINE("# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter\n");
        for (int position = 0; position < POSITIONS; position++)
            LINE("vllm:spec_decode_num_accepted_tokens_per_pos_total{%s,position=\"%d\"} %llu\n", labels, position,
                 drafts * (unsigned)(POSITIONS - position) / 5);
    }
#undef LINE
    answer(c, 200, "text/plain; version=0.0.4; charset=utf-8", page);
}

static void tell_stats(struct connection *c) {
    char text[512];
    snprintf(text, sizeof text,
             "{\"connections\":%llu,\"generating_connections\":%llu,\"requests\":%llu,\"chunks\":%llu,\"running\":%d,"
             "\"aborted\":%llu,\"last_abort_ns\":%llu,\"cpu_us\":%llu}",
             connections, generating_connections, requests, chunks, running[0] + running[1], aborted, last_abort_ns,
             own_cpu_us());
    answer(c, 200, "application/json", text);
}

static void get(struct connection *c, const char *head) {
    static const char models[] = "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\",\"created\":"
                                 "1790000000,\"owned_by\":\"bench\",\"max_model_len\":32768}]}";
    if (!strncmp(head, "GET /health ", 12))
        answer(c, 200, "text/plain", "");
    else if (!strncmp(head, "GET /metrics ", 13))
        tell_metrics(c);
    else if (!strncmp(head, "GET /v1/models ", 15))
        answer(c, 200, "application/json", models);
    else if (!strncmp(head, "GET /mock/stats ", 16))
        tell_stats(c);
    else
        answer(c, 404, "text/plain", "");
}

/* Takes one whole request off the input; false when there is none. */
static bool take_request(struct connection *c) {
    char *end = memmem(c->input, c->have, "\r\n\r\n", 4);
    if (!end || c->answering)
        return false;
    size_t head_bytes = (size_t)(end - c->input) + 4;
    end[3] = 0;
    long body_bytes = number_after(c->input, "\r\ncontent-length:", 0);
    if (strcasestr(c->input, "\r\ntransfer-encoding:"))
        die("mock engine: a request body in chunks is not understood");
    size_t whole = head_bytes + (size_t)body_bytes;
    if (body_bytes < 0 || whole >= INPUT_BYTES)
        die("mock engine: a request of %ld bytes is too long", body_bytes);
    if (c->have < whole) {
        end[3] = '\n';
        return false;
    }
    char kept = c->input[whole];
    c->input[whole] = 0;
    if (c->input[0] == 'P')
        generate(c, c->input, c->input + head_bytes);
    else
        get(c, c->input);
    c->input[whole] = kept;
    c->have -= whole;
    memmove(c->input, c->input + whole, c->have);
    return true;
}

static void listen_on(int port_index) {
    struct sockaddr_in address = loopback(0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 4096) < 0)
        die("mock engine: cannot listen: %s", strerror(errno));
    listeners[port_index] = fd;
    set_watch(poller, EPOLL_CTL_ADD, fd, EPOLLIN, &listeners[port_index]);
}

static unsigned port_of(int fd) {
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &size);
    return ntohs(address.sin_port);
}

static void accept_all(int port_index) {
    for (int fd; (fd = accept4(listeners[port_index], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        struct connection *c = allocate(sizeof *c);
        c->fd = fd;
        c->port = port_index;
        c->place = -1;
        no_delay(fd);
        connections++;
        set_watch(poller, EPOLL_CTL_ADD, fd, EPOLLIN, c);
    }
    if (errno != EAGAIN && errno != ECONNABORTED)
        die("mock engine: accept: %s", strerror(errno));
}

static void attend(struct connection *c, uint32_t events) {
    if (events & EPOLLOUT && c->unsent_bytes)
        say_unsent(c);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t got = recv(c->fd, c->input + c->have, INPUT_BYTES - 1 - c->have, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        hang_up(c);
        return;
    }
    c->have += (size_t)got;
    while (take_request(c))
        ;
}

int main(void) {
    static char input_tag, timer_tag;
    struct epoll_event events[EVENTS_AT_ONCE];
    poller = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (poller < 0 || timer < 0)
        die("mock engine: %s", strerror(errno));
    set_watch(poller, EPOLL_CTL_ADD, timer, EPOLLIN, &timer_tag);
    set_watch(poller, EPOLL_CTL_ADD, STDIN_FILENO, EPOLLIN, &input_tag);
    for (int i = 0; i < PORTS; i++)
        listen_on(i);
    printf("ports %u %u\n", port_of(listeners[0]), port_of(listeners[1]));
    fflush(stdout);
    for (uint64_t armed = NEVER;;) {
        uint64_t due = heap_size ? heap[0]->due : NEVER;
        if (due != armed)
            wake_at(timer, armed = due);
        int ready = epoll_wait(poller, events, EVENTS_AT_ONCE, -1);
        if (ready < 0 && errno != EINTR)
            die("mock engine: epoll_wait: %s", strerror(errno));
        for (int i = 0; i < ready; i++) {
            void *owner = events[i].data.ptr;
            if (owner == &input_tag)
                return 0;
            if (owner == &listeners[0] || owner == &listeners[1])
                accept_all(owner == &listeners[1]);
            else if (owner != &timer_tag)
                attend(owner, events[i].events);
        }
        emit_due();
    }
}
