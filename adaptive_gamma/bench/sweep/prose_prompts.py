"""Requests in prose for the builtin prompt set: written for it; letters, summaries, stories, advice, explanations."""

from __future__ import annotations

from typing import Final

__all__ = ["PROSE_PROMPTS"]

PROSE_PROMPTS: Final[tuple[str, ...]] = (
    "Write a letter to a friend who moved abroad three years ago and whom you have not answered since spring. Be "
    "warm, do not make excuses, and tell one small story from home.",
    "Tell me a story about a postman on an island where nobody receives letters any more. About a page, quiet in "
    "tone, with an ending that is neither sad nor sweet.",
    """Summarize this for the residents' newsletter in one paragraph:

The lift in the north staircase will be replaced from the ninth of May. The work takes five weeks because the
shaft has to be widened for the new cabin, which can take a wheelchair and a second person. During that time the
south lift stays in service, but it will be reserved for deliveries between seven and nine in the morning.
Anyone who cannot climb stairs may use the flat kept free for the purpose on the first floor; the caretaker has
the keys and a list.""",
    "Explain to a curious adult why bread goes stale faster in a refrigerator than on the kitchen table, and what "
    "bakers did about it before there were plastic bags.",
    "My sister and I inherited our parents' house together. She wants to sell, I want to keep it, and we have stopped "
    "talking about anything else. Please give me advice on how to begin a better conversation.",
    "Describe a railway station at five in the morning, in winter, through the eyes of somebody who has just missed "
    "the last train of the night and is waiting for the first of the day.",
    "Give a toast for the retirement dinner of a librarian who ran the children's section for thirty-one years, "
    "forgave every fine, and could find any book from a wrong title and the colour of its cover.",
    """Rewrite this so that it sounds friendly without losing the point:

"It has come to our attention that members of your household repeatedly leave bicycles in the entrance hall.
This is in breach of the house rules. Should the situation persist we shall be obliged to have the bicycles
removed at your cost.\"""",
    "What was a journey across the Alps like for a merchant in the fifteenth century? I am interested in the daily "
    "things: food, roads, fear, company, weather.",
    "Write a poem of five short verses about a garden in November. No rhymes, please, and nothing about death.",
    "I have been asked to give a speech at my grandfather's ninetieth birthday. He was a ship's cook, hates fuss, and "
    "laughs at his own jokes before he has finished them. Four minutes, and let people laugh with him.",
    "Recommend a weekend in a small European town in early March for two people who like long walks, old churches, "
    "and dinner before eight. Say why, and what to do if it rains.",
    "Imagine a dialogue between the two oldest trees in a city park on the day a bench is put up between them. A "
    "little funny, and each of them should have a character of its own.",
    "Please draft an e-mail to the parents of my football team. Training moves from Tuesday to Thursday, the new "
    "coach is young and nervous, and I would like them to give her a kind welcome.",
    "Explain the difference between being alone and being lonely, the way you would to a teenager who has just "
    "changed schools and says that she is fine.",
    """Here are my notes from the annual meeting of our choir; please turn them into a short article for the local
paper: forty-two members, nine of them new; concert in the old mill sold out; new conductor from September,
comes from Riga; roof of the rehearsal room still leaks; collection brought in 1,300 euros; summer trip by boat;
tenors wanted, no experience needed.""",
    "Discuss whether small shops should be allowed to open on Sundays. Give the best case for both sides and then "
    "your own opinion, in plain words and without statistics.",
    "Write the first page of a novel in which a woman comes back to the village where she grew up in order to empty "
    "her teacher's house. The reader should want to know what she is afraid to find.",
    "My neighbour has lent me her late husband's tools, and I have broken one of them. It cannot be bought any more. "
    "How do I tell her? Please write what I could say, in a few sentences that sound like a person.",
    "Give me a recipe for a vegetable soup that tastes of something, for people who think that they do not like soup, "
    "and explain along the way why each step matters.",
    """Translate this into simple English for people who are new in the country, and keep it polite:

"Applicants are hereby notified that entitlement to the reduced tariff presupposes submission of evidence of
income not older than three months, failing which the standard tariff shall be levied retroactively.\"""",
    "Write a review of an imaginary restaurant that serves only what its one cook feels like eating that day. You "
    "went twice; the first evening was wonderful, and the second was not.",
    "What makes a good apology? Explain with two examples from everyday life, one that works and one that does not, "
    "and describe what the person who receives it hears.",
    "Tell a bedtime story for twins of six about a cloud that is too shy to rain. One of the two likes jokes, the "
    "other wants to know how things work.",
    "Describe the history of the umbrella in about three hundred words, as a cheerful museum guide would tell it to a "
    "group of visitors who would rather be in the café.",
    "I start a new job on Monday after eleven years at home with the children. I feel proud and frightened. Write me "
    "something to read on the train, honest and not too sweet.",
    """Summarise the argument of this paragraph and say what it leaves out:

People like to say that a city is made by its buildings, but ask anyone who has moved away what they miss and
they will speak of a baker, a tram, a way of queueing. Buildings outlast those things and so we take them for
the city itself, the way we take the shell for the snail. When the baker closes, nothing in the street changes
and everything does. A town that plans for its walls and not for its habits will keep its postcard and lose its
mornings.""",
    "Write a condolence card to a colleague whose dog has died. You do not know her very well, but you met the dog, "
    "who once ate your lunch.",
    "Explain how a language dies, and what is lost with it, to somebody who says that it would be easier if everybody "
    "spoke the same one. Be fair to that opinion.",
    "Plan a surprise for my parents' fortieth wedding anniversary. They do not like restaurants, they have "
    "everything, and my father finds out every secret. Three ideas, each with the way to keep it from him.",
    "Write a monologue for an elderly actor who has forgotten his lines on stage and talks to the audience until they "
    "come back to him. It should move from embarrassment to pleasure.",
    "Please write a short announcement for the museum's website: the collection of clocks is closed for a month "
    "because all of them must be wound, cleaned and argued about. Keep it light, and say when the children's tours "
    "resume.",
    "Describe how autumn sounds in a house by the sea, from the first storm to the first frost, in one long paragraph "
    "that could open a travel book.",
    "What would you tell a friend who has been offered a good job in a city that he dislikes? Do not decide for him; "
    "help him to find out what he wants.",
)
