/* A chat request as a small service sends it: 1.05 kB of body, the first words of the user different each time. */
#ifndef CHAT_REQUEST_H
#define CHAT_REQUEST_H

#include "common.h"

/* Writes the request into `out`; returns its size and where its ten-digit number stands. */
static inline size_t compose_request(char *out, size_t room, unsigned port, unsigned max_tokens, bool stream,
                                     double rate, char **number) {
    static const char number_name[] = "Request 0000000000";
    char body[2048];
    int size = snprintf(
        body, sizeof body,
        "{\"model\":\"bench\",\"messages\":[{\"role\":\"system\",\"content\":\"You answer the visitors of a town "
        "museum. Be brief and friendly, name the room of every piece you mention, and say so when you do not know. The "
        "museum opens at ten and closes at half past six, on Mondays it stays closed; the garden is free, the tower "
        "costs two coins and its stairs are steep. Children under twelve pay nothing. Dogs wait at the gate, bicycles "
        "behind the mill.\"},{\"role\":\"user\",\"content\":\"%s. We are four, two of us with small children, and "
        "come by the late train on Saturday, which arrives at ten past four when it is on time. Is there still time "
        "for the clock collection and the tower, and in which order would you see them? My father cannot climb stairs "
        "any more, so what could he look at while we are up there? He was a watchmaker and likes to read every sign, "
        "and he would love a bench with a view of the river. Last, where may we eat nearby without booking a table "
        "first?\"}],\"max_tokens\":%u,\"temperature\":0.7,\"stream\":%s}",
        number_name, max_tokens, stream ? "true" : "false");
    int whole = snprintf(
        out, room,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%u\r\nuser-agent: load-client\r\naccept: */*\r\n"
        "content-type: application/json\r\nx-mock-rate: %.0f\r\ncontent-length: %d\r\n\r\n%s",
        port, rate, size, body);
    *number = strstr(out, number_name) + sizeof "Request " - 1;
    return (size_t)whole;
}

#endif
