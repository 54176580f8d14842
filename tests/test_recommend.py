"""Which engine is recommended for which task: labelled tasks in plain words, and some that only look like it."""

from collections import Counter

import pytest

from loopwright import ConfigError, Tool, ToolSpec, available_engines, tool
from loopwright.recommend import SIGNALS, Recommendation, recommend_engine


def spec(name: str, description: str = "") -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": {}})


SEARCH = (spec("search", "Search the web."),)
CODE = (spec("run_python", "Run a program."),)
CLOCK = (spec("now", "The time of day."),)
HOME = (spec("lights", "Switch lights."), spec("send_email", "Send an email."), spec("calendar", "Read the calendar."))
WEATHER = (spec("weather", "Current weather in a city."),)
NONE: tuple[ToolSpec, ...] = ()

LABELLED: dict[str, list[tuple[str, tuple[ToolSpec, ...]]]] = {
    "react": [
        ("What's the weather in Lisbon right now?", WEATHER),
        ("Send an email to Ana saying that I'll be late.", HOME),
        ("Look up the opening hours of the Louvre.", SEARCH),
        ("How many open issues does the httpx repository have?", SEARCH),
        ("Turn off the lights in the kitchen.", HOME),
        ("What is the current price of Bitcoin in euros?", SEARCH),
        ("Delete the file report.txt.", (spec("delete_file"),)),
        ("Convert 120 euros to dollars at today's rate.", (spec("exchange_rate"),)),
        ("Find the email from Tom about the invoice.", HOME),
        ("Who is the mayor of Graz?", SEARCH),
        ("What does the word 'verify' mean in this contract?", SEARCH),
        ("Show me the plan for tomorrow.", HOME),
        ("What's 17% of 2,340?", (spec("calculator"),)),
        ("Who wrote the first Python tutorial?", SEARCH),
        ("What is the song 'First We Take Manhattan, then ...' about?", SEARCH),
        ("delete all sessions from the database", (spec("sql"),)),
        ("What time is it?", CLOCK),
        ("Check whether it will rain tomorrow.", WEATHER),
    ],
    "plan-execute": [
        (
            "First collect the sales figures of all three regions, then compare them, and finally write a summary.",
            SEARCH,
        ),
        ("Compare the populations of Oslo, Vienna, Madrid and Lisbon and write a table with sources.", SEARCH),
        ("Prepare my trip to Rome: find a flight, book a hotel near the station, and draft an itinerary.", SEARCH),
        ("Write a market report on electric bikes with an introduction, five competitors and a recommendation.", NONE),
        ("Download the dataset, clean it, train a model and report its accuracy.", CODE),
        ("For each of the ten companies in the list, find the CEO and the year it was founded.", SEARCH),
        ("Migrate the data to Postgres: export it, create the schema, import everything, switch the app over.", CODE),
        ("1. Read the log files\n2. Count the errors by type\n3. Draft a message to the team", HOME),
        ("Organise a conference for 200 people: venue, catering, speakers and budget.", SEARCH),
        ("Get the weather in Berlin, Paris and Rome.", WEATHER),
        ("Research the three largest solar producers, summarise their strategies, and outline a slide deck.", SEARCH),
    ],
    "reflexion": [
        ("Write a Python function that parses ISO 8601 durations; it must pass the tests in test_iso.py.", CODE),
        ("Implement an LRU cache with O(1) get and put.", NONE),
        ("Fix the bug so that all unit tests pass.", CODE),
        ("Write a regex that matches valid IPv6 addresses.", NONE),
        ("Complete this:\n```python\ndef is_palindrome(text: str) -> bool:\n    ...\n```", CODE),
        ("Solve this LeetCode problem: return the indices of the two numbers that add up to a target.", NONE),
        ("Write a SQL query that returns the top three customers by revenue.", CODE),
        ("Please refactor the class so that the test suite still passes.", CODE),
        ("Write fib(n), the n-th Fibonacci number. assert fib(10) == 55", NONE),
        ("Could you write a Rust program which reads stdin and prints the longest line", NONE),
        ("Fill in the application form and try again until the validator accepts it.", HOME),
    ],
    "self-ask": [
        ("Who was president of the United States when the inventor of the telephone died?", SEARCH),
        ("What is the capital of the country that won the 1998 World Cup?", SEARCH),
        ("When was the founder of the company that makes the iPhone born?", SEARCH),
        ("Which actor in Inception was born in the same city as the director of Titanic?", SEARCH),
        ("What is the birthplace of the author of The Trial?", SEARCH),
        ("What is the population of the city where the painter of the Night Watch was born?", SEARCH),
        ("Who is the spouse of the director of the film that won Best Picture in 1995?", SEARCH),
        ("Did the author of Dracula live longer than the author of Frankenstein?", SEARCH),
        ("In which country is the university where the discoverer of penicillin studied?", SEARCH),
        ("What is the home town of the singer who recorded the theme song of Goldfinger?", SEARCH),
        ("Who was king of Spain when the composer of Don Giovanni was born?", SEARCH),
    ],
    "chain-of-thought": [
        ("A train leaves at 9:40 and travels 210 km at 70 km/h. When does it arrive?", NONE),
        ("If Anna has three times as many apples as Ben and together they have 24, how many does Ben have?", NONE),
        ("All bloops are razzies and all razzies are lazzies. Are all bloops lazzies?", NONE),
        ("What is 15 percent of 240, plus 12?", NONE),
        ("Tom is taller than Jim. Jim is taller than Sue. Who is the shortest?", NONE),
        ("A bat and a ball cost 1.10 in all. The bat costs 1.00 more than the ball. What does the ball cost?", NONE),
        ("Take the last letters of the words in 'Elon Musk' and concatenate them.", NONE),
        ("A coin is heads up. Phoebe flips it. Osvaldo does not flip it. Is the coin still heads up?", NONE),
        ("Why is the sky blue?", NONE),
        ("Is 2027 a prime number?", NONE),
        ("What is a unit test?", NONE),
        ("did you review it?", NONE),
        ("What is a crossword?", NONE),
        ("Write a poem about tests.", NONE),
        ("What does 'first come, first served' mean, and when does one say it then?", NONE),
    ],
    "critic": [
        ("Fact-check this paragraph: The Eiffel Tower was built in 1899 by Gustave Eiffel.", SEARCH),
        ("Verify the claims in the following press release.", SEARCH),
        ("Is this statement true: the Great Wall of China is visible from space?", SEARCH),
        ("Check whether the dates in this biography are correct.", SEARCH),
        ("Write a short biography of Marie Curie. Every fact must be accurate and supported by a source.", SEARCH),
        ("Proofread my answer and correct any factual errors.", SEARCH),
        ("Please double-check the numbers in this table against the official statistics.", SEARCH),
        ("Write an encyclopedia entry on the Battle of Hastings without any mistakes.", SEARCH),
        ("Make sure that the medical advice below contains nothing wrong.", SEARCH),
        ("Are all the citations in this essay real?", SEARCH),
        ("Find factual errors in this text: 1. Water boils at 90 degrees. 2. Rome is in Spain.", SEARCH),
    ],
    "tree-of-thoughts": [
        ("Use the numbers 4, 9, 10 and 13 and basic arithmetic operations to get 24.", NONE),
        ("Game of 24: 1 3 4 6", NONE),
        ("Solve this 5x5 mini crossword.", NONE),
        ("Find an arrangement of eight queens on a chessboard such that none attacks another.", NONE),
        ("Brainstorm ten names for a coffee shop and pick the best one.", NONE),
        ("Write a story of four paragraphs whose last sentences are: It rained. He left. She sang. We won.", NONE),
        ("Solve the sudoku below.", CODE),
        ("Find a combination of coins that adds up to 87 cents using exactly seven coins.", NONE),
        ("Seat seven guests around a table so that nobody sits beside a rival.", NONE),
        ("Come up with several possible slogans for our campaign and choose the strongest.", SEARCH),
        ("Three missionaries and three cannibals must cross a river with a boat for two. How?", NONE),
        ("Schedule twelve matches in four rounds so that no team plays twice in a row.", NONE),
    ],
}
CASES = [(task, tools, engine) for engine, cases in LABELLED.items() for task, tools in cases]


def test_most_tasks_get_the_engine_that_their_label_says(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [
        (engine, got.engine, task)
        for task, tools, engine in CASES
        if (got := recommend_engine(task, tools)).engine != engine
    ]
    right = 1 - len(wrong) / len(CASES)
    with capsys.disabled():
        print(f"\n  recommend_engine: {right:.0%} of {len(CASES)} tasks as labelled", end="")

    assert len(CASES) >= 70
    assert all(len(cases) >= 10 for cases in LABELLED.values())
    assert right >= 0.85, wrong
    assert max(Counter(engine for engine, _, _ in wrong).values(), default=0) <= 2, wrong
