"""Requests about code for the builtin prompt set: written for it, short and long, in many languages."""

from __future__ import annotations

from typing import Final

__all__ = ["CODE_PROMPTS"]

CODE_PROMPTS: Final[tuple[str, ...]] = (
    "Write a Python function that merges overlapping time intervals given as (start, end) tuples. Include type hints "
    "and three doctests, one of them with touching intervals.",
    """This parser drops the last record of every file. Find the bug and show the corrected function.

```python
def read_records(stream):
    record = []
    for line in stream:
        line = line.rstrip("\\n")
        if line == "---":
            yield record
            record = []
        else:
            record.append(line)
```""",
    "Implement a thread-safe bounded queue in C++17 with push, pop, try_pop and a close() that wakes every waiter. "
    "Use std::condition_variable and explain where a spurious wake-up could hurt.",
    """Write the SQL for this. Tables: readings(sensor_id int, taken_at timestamptz, celsius real) and sensors(id int,
site text, installed date). For every site give the hottest hour of each day of the last week, with the number
of sensors that contributed, and leave out hours with fewer than three of them. PostgreSQL 16.""",
    """Refactor this into small pure functions. Keep the behaviour, including the order of the result.

```javascript
function report(orders) {
  let out = [];
  for (let i = 0; i < orders.length; i++) {
    let o = orders[i];
    if (o.status != "void" && o.lines) {
      let t = 0;
      for (let j = 0; j < o.lines.length; j++) { t = t + o.lines[j].qty * o.lines[j].price; }
      if (o.coupon) { t = t - t * o.coupon.percent / 100; }
      out.push({ id: o.id, total: Math.round(t * 100) / 100, late: o.due < Date.now() });
    }
  }
  out.sort(function (a, b) { return b.total - a.total; });
  return out;
}
```""",
    "Write a Rust struct RingBuffer<T, const N: usize> with push_back, pop_front, len and an iterator from oldest to "
    "newest. No unsafe code, no allocation, and unit tests for wrap-around.",
    """Our build stopped working after an upgrade. What does this compiler error mean and how do I fix the code?

error: incompatible types: inference variable T has incompatible bounds
    List<String> names = Stream.of(1, 2, 3).collect(Collectors.toList());
                                                   ^
    equality constraints: String
    lower bounds: Integer""",
    "Create a bash script that walks a directory tree and reports the twenty largest files with their sizes in "
    "human-readable form. It must handle names with spaces and newlines, and skip anything under .git.",
    """Write unit tests with pytest for this function, including the cases its author forgot.

```python
def split_bill(total_cents: int, people: int, tip_percent: int = 0) -> list[int]:
    with_tip = total_cents + total_cents * tip_percent // 100
    share = with_tip // people
    return [share] * (people - 1) + [with_tip - share * (people - 1)]
```""",
    "Implement Dijkstra's algorithm in Go over an adjacency map map[string]map[string]int. Return both the distance "
    "and the path, use container/heap, and return an error for a negative edge.",
    """Convert this callback code to async/await and make sure that the connection is closed on every path.

```javascript
db.connect(function (err, conn) {
  if (err) return done(err);
  conn.query("select id from jobs where state = 'new' limit 10", function (err, rows) {
    if (err) return done(err);
    lock(rows, function (err, locked) {
      if (err) return done(err);
      conn.close();
      done(null, locked);
    });
  });
});
```""",
    "Write a Dockerfile for a Node.js 22 service that is built with pnpm: separate stages for dependencies and build, "
    "a non-root user, and a health check that does not need curl.",
    """Explain what this regular expression matches, then rewrite it in verbose mode with a comment per part.

```python
PATTERN = re.compile(r"^(?:(?:https?|ssh)://)?(?:[^@/\\s]+@)?([\\w.-]+)[:/](\\w[\\w.-]*)/([\\w.-]+?)(?:\\.git)?/?$")
```""",
    "Implement a trie in TypeScript that supports insert, has, and suggestions(prefix, limit) in alphabetical order. "
    "Type it strictly and keep each node's children in a Map.",
    """This Kubernetes manifest is refused with "selector does not match template labels". Correct it and add a
readiness probe on /ready, port 8080.

apiVersion: apps/v1
kind: Deployment
metadata:
  name: ledger
spec:
  replicas: 2
  selector:
    matchLabels: {app: ledger, tier: api}
  template:
    metadata:
      labels: {app: ledger}
    spec:
      containers:
        - name: ledger
          image: registry.internal/ledger:2.8.1
          ports: [{containerPort: 8080}]""",
    "Write a Python decorator `retry` with parameters attempts, first_delay, factor and exceptions. It must work on "
    "both plain and async functions and keep the signature visible to a type checker.",
    """The function below is quadratic. Rewrite it so that it runs in linear time and say what it costs in memory.

```java
static List<String> duplicates(List<String> names) {
    List<String> found = new ArrayList<>();
    for (int i = 0; i < names.size(); i++)
        for (int j = i + 1; j < names.size(); j++)
            if (names.get(i).equals(names.get(j)) && !found.contains(names.get(i)))
                found.add(names.get(i));
    return found;
}
```""",
    "Generate a GitHub Actions workflow in YAML that runs ruff, mypy and pytest on Python 3.11 to 3.13, caches the "
    "package downloads, and uploads the coverage report only from the newest version.",
    """Here is a C function with a buffer overflow. Show the line, explain how it is reached, and give a fixed version.

```c
int join(char *out, size_t room, const char **parts, int count, char separator) {
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(parts[i]);
        if (used + length > room) return -1;
        memcpy(out + used, parts[i], length);
        used += length;
        out[used++] = separator;
    }
    out[used] = '\\0';
    return (int)used;
}
```""",
    "Write a React component `SearchBox` in TypeScript that debounces its input by 250 ms, cancels the request in "
    "flight with AbortController, and shows a list of results that can be walked with the arrow keys.",
    """Translate this numpy code to PyTorch so that it runs in batches on a GPU. Keep the shapes in comments.

```python
def attention(query, key, value, mask=None):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores)
    return (weights / weights.sum(axis=-1, keepdims=True)) @ value
```""",
    "Implement the Sieve of Eratosthenes as a Haskell function that returns a lazy list of primes, and compare it "
    "with the one-line version that everybody writes and that is not really a sieve.",
    """Given this OpenAPI fragment, write the FastAPI router and the pydantic models for it.

paths:
  /loans/{loan_id}/extensions:
    post:
      parameters: [{name: loan_id, in: path, required: true, schema: {type: string, format: uuid}}]
      requestBody:
        content:
          application/json:
            schema:
              type: object
              required: [days]
              properties: {days: {type: integer, minimum: 1, maximum: 28}, note: {type: string, maxLength: 200}}
      responses: {"201": {description: created}, "409": {description: already extended twice}}""",
    "Write a PowerShell script that reads a CSV with the columns Name, Mail and Department, creates missing Active "
    "Directory users in the right unit, and writes what it would do when called with -WhatIf.",
    """The test passes alone and fails in the suite. Explain why, and repair the fixture.

```python
CACHE = {}

@pytest.fixture
def rates():
    CACHE.setdefault("EUR", 1.0)
    CACHE.setdefault("USD", 1.09)
    return CACHE

def test_conversion(rates):
    rates["USD"] = 2.0
    assert convert(10, "USD", rates) == 5.0
```""",
    "Create a Makefile for a small C project with src/, include/ and tests/: automatic header dependencies, separate "
    "debug and release builds with a sanitizer in debug, and a `check` target that runs every test binary.",
    """Review this diff as a senior engineer would. Name every problem in order of importance.

--- a/session.go
+++ b/session.go
@@ -31,9 +31,15 @@ func (s *Store) Get(id string) (*Session, error) {
-       s.mu.Lock()
-       defer s.mu.Unlock()
-       return s.items[id], nil
+       if session, ok := s.items[id]; ok {
+               return session, nil
+       }
+       s.mu.Lock()
+       session, err := s.load(id)
+       s.items[id] = session
+       s.mu.Unlock()
+       go s.touch(id)
+       return session, err
 }""",
    "Write an Elixir GenServer that limits each client to a number of calls per minute with a token bucket. Include "
    "the supervision tree and one ExUnit test for the refill.",
    """Fill in the body of this function. Follow the docstring to the letter.

```python
def wrap_table(rows: list[list[str]], width: int) -> str:
    \"\"\"Lay the rows out as a text table of at most `width` characters.

    Columns share what remains after separators (" | ") in proportion to their longest cell, never under 4 characters.
    A cell that does not fit is wrapped at spaces; a word longer than its column is cut with an ellipsis. Rows are
    separated by a line of dashes. Raises ValueError when `width` cannot hold every column at 4 characters.
    \"\"\"
```""",
    "Implement matrix multiplication as a CUDA kernel with shared-memory tiles of 16 by 16. Handle sizes that are no "
    "multiple of the tile, and write the host code that checks the result against a loop on the CPU.",
    """pandas is too slow here: 40 million rows, eight minutes. Rewrite it with polars in lazy mode.

```python
frame = pd.read_csv("trips.csv", parse_dates=["start", "end"])
frame["minutes"] = (frame["end"] - frame["start"]).dt.total_seconds() / 60
frame = frame[(frame["minutes"] > 1) & (frame["minutes"] < 240)]
frame["hour"] = frame["start"].dt.hour
result = frame.groupby(["station", "hour"]).agg(trips=("minutes", "size"), median=("minutes", "median"))
result.reset_index().sort_values("trips", ascending=False).to_parquet("by_hour.parquet")
```""",
    "Write a recursive descent parser in Python for arithmetic with + - * / ^, unary minus, parentheses and function "
    "calls such as max(1, x). Produce a tree of dataclasses and report errors with the column.",
    "Solve the recurrence T(n) = 3 T(n/2) + n log n with the master theorem, then write a small Python script that "
    "checks the growth numerically for n up to two to the power of twenty.",
    """Write a Terraform module from this description: an S3 bucket with versioning and a lifecycle rule that moves
objects to infrequent access after 30 days and deletes old versions after a year, a bucket policy that refuses
plain HTTP, and an output with the ARN. Variables: name, tags, and a boolean force_destroy that is false by
default.""",
)
