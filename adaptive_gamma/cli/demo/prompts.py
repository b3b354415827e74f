"""Prompts for the demonstration: two dozen requests about code and two dozen in prose, as people write them."""

from __future__ import annotations

from typing import Final

__all__ = ["CODE_PROMPTS", "PROSE_PROMPTS"]

CODE_PROMPTS: Final[tuple[str, ...]] = (
    """Why does this print the same list three times? I expected one name in each.

```python
def enroll(name, roster=[]):
    roster.append(name)
    return roster

for name in ("ada", "grace", "edsger"):
    print(enroll(name))
```""",
    """Our worker dies once or twice a day with this. What is the likely cause, and how do I fix it?

Traceback (most recent call last):
  File "/srv/app/worker.py", line 88, in consume
    for key, job in self.pending.items():
RuntimeError: dictionary changed size during iteration""",
    """Implement a Go function (golang 1.23) that merges any number of sorted channels of int into one. It must
stop all goroutines when the context is cancelled. Include a table-driven test.""",
    """Refactor this into something a colleague can read, without changing what it returns:

```javascript
const f = (a) => a.reduce((m, x) => (m[x.t] ? m[x.t].push(x) : (m[x.t] = [x]), m), {});
```""",
    """Given this PostgreSQL schema, write the query for the three best-selling products of each month in 2025.

```sql
CREATE TABLE orders (id bigint PRIMARY KEY, placed_at timestamptz NOT NULL);
CREATE TABLE order_lines (order_id bigint REFERENCES orders, product_id int, quantity int, price_cents int);
```""",
    """rustc refuses this and I do not understand the borrow that it complains about. Explain, then give a
version that compiles.

```rust
fn longest(words: &Vec<String>) -> &str {
    let mut best = String::new();
    for w in words { if w.len() > best.len() { best = w.clone(); } }
    &best
}
```

error[E0515]: cannot return reference to local variable `best`""",
    """Implement an LRU cache class in Python with get and put in O(1). Do not use functools or OrderedDict.
Type hints and a docstring, please.""",
    """This unit test is flaky in CI: it passes about nine times in ten. Find the race and fix the test.

```python
def test_worker_updates_status():
    worker = Worker()
    threading.Thread(target=worker.run).start()
    time.sleep(0.1)
    assert worker.status == "done"
```""",
    """Write a bash script that deletes Docker images older than 14 days, except those whose tag starts with
`release-`. It needs a --dry-run flag and must survive names with spaces.""",
    """Here is the output of EXPLAIN ANALYZE. Why is there a sequential scan although user_id has an index?

```
Seq Scan on events  (cost=0.00..412345.00 rows=9712345 width=64) (actual time=0.02..5123.11 rows=9700121 loops=1)
  Filter: ((user_id)::text = '4711'::text)
  Rows Removed by Filter: 120934
```""",
    """Convert this React class component to a function component with hooks. Keep the cleanup.

```jsx
class Clock extends React.Component {
  state = { now: new Date() };
  componentDidMount() { this.timer = setInterval(() => this.setState({ now: new Date() }), 1000); }
  componentWillUnmount() { clearInterval(this.timer); }
  render() { return <time>{this.state.now.toLocaleTimeString()}</time>; }
}
```""",
    """Prove that the sum of the first n odd integers equals n squared, once by induction and once without it.
Then write the induction proof in LaTeX.""",
    """Write a Kubernetes manifest: a Deployment with 3 replicas of `registry.local/api:1.4`, a readiness probe
on /health, a PodDisruptionBudget that keeps two pods up, and resource limits. YAML only.""",
    """Segmentation fault in this C code when the file has no newline at the end. Show me where, and the
smallest patch.

```c
char *read_line(FILE *f) {
    char *buf = malloc(64); int n = 0, c;
    while ((c = fgetc(f)) != '\\n') buf[n++] = c;
    buf[n] = 0;
    return buf;
}
```""",
    """Write a regex for ISO 8601 timestamps with optional fractional seconds and an offset or Z. Show it in
Python with named groups and ten test strings, five of which must not match.""",
    """Explain the time complexity of this function and write a linear version.

```python
def has_pair(numbers, target):
    return any(a + b == target for i, a in enumerate(numbers) for b in numbers[i + 1:])
```""",
    """Review this diff. Anything that breaks under concurrency?

--- a/limiter.py
+++ b/limiter.py
@@ -12,6 +12,9 @@ class Limiter:
     def allow(self, key):
-        return self.store.incr(key) <= self.limit
+        count = self.store.get(key) or 0
+        self.store.set(key, count + 1)
+        return count < self.limit""",
    """Solve the equation 3x^2 - 12x + 7 = 0 exactly, then write a Python function that returns the real roots of any
quadratic and handles the degenerate cases.""",
    """Generate TypeScript types and a zod schema from this JSON. Dates stay strings; `tags` may be missing.

```json
{"id": "a1", "title": "Leaky tap", "opened": "2025-03-02", "priority": 2, "tags": ["kitchen"], "owner": null}
```""",
    """Our asyncio service hangs on shutdown. This is all the code around it; what is never awaited?

```python
async def main():
    queue = asyncio.Queue()
    tasks = [asyncio.create_task(worker(queue)) for _ in range(8)]
    await serve(queue)
    await queue.join()
```""",
    """Write a Dockerfile for a Python 3.12 FastAPI application: multi-stage, no root user, dependencies cached
in their own layer, and no compiler in the final image.""",
    """Write a SQL migration that splits `full_name` into `first_name` and `last_name` on a table of 40 million
rows with no long lock. Explain each step and how to roll it back.""",
    """Implement binary search over a rotated sorted array in Java, with JUnit tests for an empty array, one
element and duplicates.""",
    """pandas gives me SettingWithCopyWarning on the last line. What does it mean here, and what should I write
instead?

```python
df = pd.read_csv("sales.csv")
recent = df[df["year"] > 2023]
recent["margin"] = recent["revenue"] - recent["cost"]
```""",
)

PROSE_PROMPTS: Final[tuple[str, ...]] = (
    """Write a warm letter to my grandmother, who turns 90 on Sunday. She kept bees until last year and hates
being told that she should rest.""",
    """Summarize this for my manager in three sentences:

The office move planned for June is now expected in late August. The landlord found damp in the east wing and
wants it dried out before anyone signs. Facilities have kept the old lease open until October at the present
rent, so no team has to leave early, but the new meeting rooms will not be ready for the autumn training week.""",
    """I have two weeks of holiday in October and would like to see autumn colours by train. Which countries
would you look at, and what does a relaxed itinerary feel like?""",
    """Tell me a bedtime story about a lighthouse keeper who is afraid of the dark. My daughter is five, so
please nothing scary, and let the ending be quiet.""",
    """My best friend and I had an argument about money and have not spoken for a month. I miss her. How do I
begin the conversation without opening it all again?""",
    """Translate into polite French, and explain the choice of words: "I am sorry to trouble you again, but the
heating in my room still does not work and the nights are getting cold." """,
    """Give a short toast for my brother's wedding. He proposed on a mountain in heavy rain, and she said yes
before he had finished the question.""",
    """Explain the history of the Hanseatic League and its decline. I would like an answer for a curious adult,
about the length of a newspaper column.""",
    """Rewrite this cover letter paragraph so that it sounds less stiff: "I hereby wish to express my sincere
interest in the position as advertised. I am in possession of extensive experience in the domain of customer
relations." """,
    """Write a poem of four verses about the last tram of the night, from the point of view of the driver.""",
    """What is a good way to explain death to a child of seven whose cat has just died? We are not religious.""",
    """Please draft a friendly but firm e-mail to our neighbours. Their dog barks from six in the morning, and
they have promised twice to do something about it.""",
    """Recommend five novels for someone who loved the slow, kind tone of books about village life and does not
want a murder in them. A sentence on each.""",
    """Plan a dinner for six, one of them vegetarian and one who cannot eat nuts. I would like to have most of
it ready before the guests come, and to sit down with them.""",
    """Describe the smell and the sound of a market in the early morning. One paragraph; it opens a travel
article, so it should pull the reader in.""",
    """I would like your advice. I start as a team lead on Monday, and two of the people I will lead applied for
the same post. What would you say to them in the first week, and what would you leave unsaid?""",
    """Write a speech for a retirement party: forty years as a primary school teacher, famous for her terrible
puns and for remembering the name of every child she ever taught.""",
    """Discuss whether cities should make public transport free. Give the strongest case for each side and then
your own opinion, in plain words.""",
    """Here are my notes from the parents' evening; please turn them into a paragraph for the school newsletter: new
playground opened by the mayor, cake sale raised 840 pounds, choir sang two songs, more volunteers wanted for
spring.""",
    """What was everyday life like for a medieval scribe? I am writing a character for a historical novel and
need the small things: light, cold, ink, hunger.""",
    """I cannot sleep before big meetings. Please give me advice that is gentle and practical, and skip the
usual list of apps.""",
    """Write an apology to a customer whose birthday flowers came two days late. Offer a new bouquet; do not
blame the weather.""",
    """Imagine a dialogue between the sea and an old harbour wall, on the night before the wall is pulled down.
About one page, a little funny, a little sad.""",
    """Explain the meaning of the saying "a watched pot never boils" to someone who is learning English, and
give three situations in which people say it.""",
)
