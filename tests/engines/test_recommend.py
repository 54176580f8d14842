"""Which engine is recommended for which task: labelled tasks in plain words, and some that only look like it."""

from collections import Counter

import pytest

from loopwright import ConfigError, Tool, ToolSpec, available_engines, tool
from loopwright.engines.recommend import SIGNALS, Recommendation, recommend_engine


def spec(name: str, description: str = "") -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": {}})


SEARCH = (spec("search", "Search the web."),)
CODE = (spec("run_python", "Run a program."),)
CLOCK = (spec("now", "The time of day."),)
HOME = (
    spec("lights", "Switch lights."),
    spec("send_email", "Send an email."),
    spec("calendar", "Read the calendar."),
)
WEATHER = (spec("weather", "Current weather in a city."),)
NONE: tuple[ToolSpec, ...] = ()

LABELLED: dict[str, list[tuple[str, tuple[ToolSpec, ...]]]] = {
    "goal-cycle": [
        ("Goal: a list of every meetup on Rust this autumn, with dates.", SEARCH),
        ("My goal is to find a cheaper supplier of filament.", SEARCH),
        ("Work towards a complete picture of what our rivals charge.", SEARCH),
        ("Reach the goal of ten interviews; ask me if you need a contact.", HOME),
        (
            "Collect what the press says about us and adjust the plan as you learn.",
            SEARCH,
        ),
        (
            "Research heat pumps for me, and ask me whenever something is unclear.",
            SEARCH,
        ),
        ("Objective: know who maintains each of our dependencies.", SEARCH),
        ("Sort out my calendar. Ask me before you decline anything.", HOME),
        (
            "Find out why the sales dropped, and rate each result before you use it.",
            CODE,
        ),
        ("Look for a flat near the river, and keep trying until one fits.", SEARCH),
    ],
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
    "turn": [
        ("Tidy my inbox, but ask me before you delete anything.", HOME),
        (
            "Book the flight and the hotel, and undo everything if one of them fails.",
            HOME,
        ),
        ("If the hotel is sold out, cancel the flight again.", HOME),
        ("Before you send the letter to Ana, ask me.", HOME),
        ("Clean up the calendar; check with me before moving a meeting.", HOME),
        ("Ask me first, and then switch the lights off.", HOME),
        (
            "Move all my meetings to Monday, and roll it back if one of them cannot be moved.",
            HOME,
        ),
        ("Send the invitations; if one bounces, undo the others.", HOME),
        ("Cancel them all again if Tom says no.", HOME),
        ("Turn the heating down, but confirm with us before the night.", HOME),
    ],
    "plan-execute": [
        (
            "First collect the sales figures of all three regions, then compare them, and finally write a summary.",
            SEARCH,
        ),
        (
            "Compare the populations of Oslo, Vienna, Madrid and Lisbon and write a table with sources.",
            SEARCH,
        ),
        (
            "Prepare my trip to Rome: find a flight, book a hotel near the station, and draft an itinerary.",
            SEARCH,
        ),
        (
            "Write a market report on electric bikes with an introduction, five competitors and a recommendation.",
            NONE,
        ),
        (
            "Download the dataset, clean it, train a model and report its accuracy.",
            CODE,
        ),
        (
            "For each of the ten companies in the list, find the CEO and the year it was founded.",
            SEARCH,
        ),
        (
            "Migrate the data to Postgres: export it, create the schema, import everything, switch the app over.",
            CODE,
        ),
        (
            "1. Read the log files\n2. Count the errors by type\n3. Draft a message to the team",
            HOME,
        ),
        (
            "Organise a conference for 200 people: venue, catering, speakers and budget.",
            SEARCH,
        ),
        ("Get the weather in Berlin, Paris and Rome.", WEATHER),
        (
            "Research the three largest solar producers, summarise their strategies, and outline a slide deck.",
            SEARCH,
        ),
    ],
    "reflexion": [
        (
            "Write a Python function that parses ISO 8601 durations; it must pass the tests in test_iso.py.",
            CODE,
        ),
        ("Implement an LRU cache with O(1) get and put.", NONE),
        ("Fix the bug so that all unit tests pass.", CODE),
        ("Write a regex that matches valid IPv6 addresses.", NONE),
        (
            "Complete this:\n```python\ndef is_palindrome(text: str) -> bool:\n    ...\n```",
            CODE,
        ),
        (
            "Solve this LeetCode problem: return the indices of the two numbers that add up to a target.",
            NONE,
        ),
        ("Write a SQL query that returns the top three customers by revenue.", CODE),
        ("Please refactor the class so that the test suite still passes.", CODE),
        ("Write fib(n), the n-th Fibonacci number. assert fib(10) == 55", NONE),
        (
            "Could you write a Rust program which reads stdin and prints the longest line",
            NONE,
        ),
        (
            "Fill in the application form and try again until the validator accepts it.",
            HOME,
        ),
    ],
    "self-ask": [
        (
            "Who was president of the United States when the inventor of the telephone died?",
            SEARCH,
        ),
        ("What is the capital of the country that won the 1998 World Cup?", SEARCH),
        ("When was the founder of the company that makes the iPhone born?", SEARCH),
        (
            "Which actor in Inception was born in the same city as the director of Titanic?",
            SEARCH,
        ),
        ("What is the birthplace of the author of The Trial?", SEARCH),
        (
            "What is the population of the city where the painter of the Night Watch was born?",
            SEARCH,
        ),
        (
            "Who is the spouse of the director of the film that won Best Picture in 1995?",
            SEARCH,
        ),
        (
            "Did the author of Dracula live longer than the author of Frankenstein?",
            SEARCH,
        ),
        (
            "In which country is the university where the discoverer of penicillin studied?",
            SEARCH,
        ),
        (
            "What is the home town of the singer who recorded the theme song of Goldfinger?",
            SEARCH,
        ),
        ("Who was king of Spain when the composer of Don Giovanni was born?", SEARCH),
    ],
    "chain-of-thought": [
        (
            "A train leaves at 9:40 and travels 210 km at 70 km/h. When does it arrive?",
            NONE,
        ),
        (
            "If Anna has three times as many apples as Ben and together they have 24, how many does Ben have?",
            NONE,
        ),
        (
            "All bloops are razzies and all razzies are lazzies. Are all bloops lazzies?",
            NONE,
        ),
        ("What is 15 percent of 240, plus 12?", NONE),
        ("Tom is taller than Jim. Jim is taller than Sue. Who is the shortest?", NONE),
        (
            "A bat and a ball cost 1.10 in all. The bat costs 1.00 more than the ball. What does the ball cost?",
            NONE,
        ),
        (
            "Take the last letters of the words in 'Elon Musk' and concatenate them.",
            NONE,
        ),
        (
            "A coin is heads up. Phoebe flips it. Osvaldo does not flip it. Is the coin still heads up?",
            NONE,
        ),
        ("Why is the sky blue?", NONE),
        ("Is 2027 a prime number?", NONE),
        ("What is a unit test?", NONE),
        ("did you review it?", NONE),
        ("What is a crossword?", NONE),
        ("Write a poem about tests.", NONE),
        (
            "What does 'first come, first served' mean, and when does one say it then?",
            NONE,
        ),
    ],
    "critic": [
        (
            "Fact-check this paragraph: The Eiffel Tower was built in 1899 by Gustave Eiffel.",
            SEARCH,
        ),
        ("Verify the claims in the following press release.", SEARCH),
        (
            "Is this statement true: the Great Wall of China is visible from space?",
            SEARCH,
        ),
        ("Check whether the dates in this biography are correct.", SEARCH),
        (
            "Write a short biography of Marie Curie. Every fact must be accurate and supported by a source.",
            SEARCH,
        ),
        ("Proofread my answer and correct any factual errors.", SEARCH),
        (
            "Please double-check the numbers in this table against the official statistics.",
            SEARCH,
        ),
        (
            "Write an encyclopedia entry on the Battle of Hastings without any mistakes.",
            SEARCH,
        ),
        ("Make sure that the medical advice below contains nothing wrong.", SEARCH),
        ("Are all the citations in this essay real?", SEARCH),
        (
            "Find factual errors in this text: 1. Water boils at 90 degrees. 2. Rome is in Spain.",
            SEARCH,
        ),
    ],
    "tree-of-thoughts": [
        (
            "Use the numbers 4, 9, 10 and 13 and basic arithmetic operations to get 24.",
            NONE,
        ),
        ("Game of 24: 1 3 4 6", NONE),
        ("Solve this 5x5 mini crossword.", NONE),
        (
            "Find an arrangement of eight queens on a chessboard such that none attacks another.",
            NONE,
        ),
        ("Brainstorm ten names for a coffee shop and pick the best one.", NONE),
        (
            "Write a story of four paragraphs whose last sentences are: It rained. He left. She sang. We won.",
            NONE,
        ),
        ("Solve the sudoku below.", CODE),
        (
            "Find a combination of coins that adds up to 87 cents using exactly seven coins.",
            NONE,
        ),
        ("Seat seven guests around a table so that nobody sits beside a rival.", NONE),
        (
            "Come up with several possible slogans for our campaign and choose the strongest.",
            SEARCH,
        ),
        (
            "Three missionaries and three cannibals must cross a river with a boat for two. How?",
            NONE,
        ),
        (
            "Schedule twelve matches in four rounds so that no team plays twice in a row.",
            NONE,
        ),
    ],
}
# Five sets, each written before the table was tuned to it: 84, 86, 86, 68 and 97 % of them were right at first.
MORE: dict[str, list[tuple[str, tuple[ToolSpec, ...]]]] = {
    "react": [
        ("When does the next train to Vienna leave?", (spec("timetable"),)),
        ("Set a timer for ten minutes.", CLOCK),
        ("What is the exchange rate between the pound and the yen?", SEARCH),
        ("Who won the Champions League in 2012?", SEARCH),
        ("Play some jazz in the living room.", HOME),
        ("What's on my calendar on Friday?", HOME),
        ("Translate 'good morning' into Japanese.", (spec("translate"),)),
        ("List the files in my home folder.", (spec("shell"),)),
        ("Restart the web server.", (spec("shell"),)),
        ("How tall is Mount Kenya?", SEARCH),
        ("What happened at the Boston Tea Party?", SEARCH),
        ("I forgot my password, can you reset it?", (spec("reset_password"),)),
        ("Add milk to my shopping list.", HOME),
        ("What did the pope say yesterday?", SEARCH),
        ("Is the pharmacy on Main Street open now?", SEARCH),
        ("Which team won the 2018 World Cup?", SEARCH),
        ("Read me my latest message.", HOME),
        ("Open the garage door, please.", HOME),
        ("Tell me about the plan of the Allies in 1944.", SEARCH),
        ("Search for cheap flights to Porto.", SEARCH),
        ("Which bus goes to the airport?", (spec("timetable"),)),
        ("Reply to Maria that I agree.", HOME),
        ("What is the phone number of the city hall?", SEARCH),
        ("Pause the music.", HOME),
        ("Who plays the lead in Oppenheimer?", SEARCH),
        ("What are the best restaurants of Lyon?", SEARCH),
        ("Order a pizza margherita to my place.", HOME),
        ("What is trending on GitHub today?", SEARCH),
        ("Mute all notifications until noon.", HOME),
        ("How many calories does a banana have?", SEARCH),
        ("Check the news about the strike.", SEARCH),
        ("Cancel my 3 pm meeting.", HOME),
        ("How far is it from Bern to Basel?", SEARCH),
        ("What did I say to Tom yesterday?", HOME),
        ("Which platform does the IC 5 leave from?", (spec("timetable"),)),
    ],
    "plan-execute": [
        (
            "Read all the customer reviews, group them by topic, and email the product team a summary of each topic.",
            HOME,
        ),
        (
            "I need a competitive analysis of Notion, Obsidian and Evernote: pricing, features and user reviews.",
            SEARCH,
        ),
        (
            "Set up a new project: create the repository, add a licence, configure CI and invite the team.",
            CODE,
        ),
        (
            "Plan a wedding for 80 guests, including a venue, a menu, music and invitations.",
            SEARCH,
        ),
        (
            "Collect last month's invoices, then total them by vendor, then send the totals to accounting.",
            HOME,
        ),
        (
            "Find the populations of the five largest cities of Japan and plot them in a chart.",
            SEARCH,
        ),
        (
            "Write a literature review on coral bleaching and create a bibliography.",
            SEARCH,
        ),
        (
            "Look up the GDP of France, Germany and Italy and calculate the average.",
            SEARCH,
        ),
        ("Go through each of the 30 support tickets and label it.", HOME),
        (
            "Research electric cars, pick three, compare their costs over five years and recommend one.",
            SEARCH,
        ),
        (
            "Gather the opening hours, ticket prices and addresses of the Prado, the Louvre and the "
            "Uffizi, and make a table.",
            SEARCH,
        ),
        (
            "Find three plumbers nearby, ask each for a quote, and book the cheapest.",
            HOME,
        ),
        (
            "Move all photos from 2020 to the archive, rename them by date and delete duplicates.",
            (spec("shell"),),
        ),
        ("- fetch the invoices\n- compute the VAT\n- email the accountant", HOME),
        (
            "To launch our newsletter, we need to pick a provider, import the subscribers, design a "
            "template and schedule the first issue.",
            SEARCH,
        ),
        (
            "Write a business plan for a bakery with a market analysis, a budget and a staffing plan.",
            NONE,
        ),
        ("What are the temperatures in Lima, Cusco and Arequipa?", WEATHER),
        (
            "Analyse the competitors, then write a strategy paper and finally prepare the slides.",
            SEARCH,
        ),
        (
            "Check the stock of all warehouses, order what is missing and notify the managers.",
            HOME,
        ),
        (
            "Plan a week of vegetarian dinners, make a shopping list and order the groceries.",
            HOME,
        ),
        (
            "I want you to find the top five AI conferences, note their deadlines, and put them in my calendar.",
            HOME,
        ),
        (
            "Write a report on the housing market in Spain with charts, sources and an outlook.",
            SEARCH,
        ),
        (
            "Summarise each of the four attached papers, compare their methods, and write a joint abstract.",
            SEARCH,
        ),
        ("Find the CEOs of Shell, BP and Total.", SEARCH),
        (
            "Pull last quarter's numbers, chart them, and share the chart with finance.",
            HOME,
        ),
        (
            "Onboard the new colleague: accounts, laptop, badge and a welcome email.",
            HOME,
        ),
        ("Find out when the museums in Bonn, Cologne and Aachen close.", SEARCH),
        ("First back up the server, next upgrade the kernel, finally reboot.", CODE),
        (
            "Compile a list of grants, rank them by deadline, and fill in the forms for the top one.",
            SEARCH,
        ),
        ("Prepare a dinner party: menu, shopping list, seating and music.", SEARCH),
        (
            "What are the capitals, populations and languages of Peru, Chile and Bolivia?",
            SEARCH,
        ),
        (
            "For every customer in the sheet, look up the address and write a letter.",
            HOME,
        ),
        (
            "Research the history of tea and then write an article with five sections.",
            SEARCH,
        ),
    ],
    "reflexion": [
        ("Write code that merges two sorted linked lists.", NONE),
        ("Debug this function, it raises IndexError on empty lists.", CODE),
        ("Implement quicksort in Haskell", NONE),
        ("The build is broken. Change the code until it compiles.", CODE),
        ("Create a bash script that renames all .jpeg files to .jpg", CODE),
        (
            "Given a string s, return the longest substring without repeating characters. Write the "
            "Python function and make sure it passes the hidden tests.",
            CODE,
        ),
        ("Make the failing tests pass.", CODE),
        ("Develop a REST endpoint for creating users, with validation.", CODE),
        ("Write a function to check whether a number is prime", NONE),
        ("Optimise this query, it takes 30 seconds: ```SELECT * FROM orders```", CODE),
        ("Write a decorator that retries a function three times.", NONE),
        (
            "Here is my code, it fails with KeyError. Fix it.\n```python\nprint({}['a'])\n```",
            CODE,
        ),
        ("Port this script from Perl to Python.", CODE),
        ("Implement the Dijkstra algorithm", NONE),
        ("I need a regex for German phone numbers, write one.", NONE),
        ("Write unit tests for the parser module.", CODE),
        ("Solve problem 12 of Project Euler.", CODE),
        ("Generate a SQL query for monthly active users", CODE),
        ("Code a snake game in JavaScript.", NONE),
        ("Write a program that prints a calendar", NONE),
        (
            "The function below should return True for leap years but does not; repair it. def leap(y): return y % 4",
            CODE,
        ),
        ("Make the CI pass again.", CODE),
        ("Implement binary search and test it.", CODE),
        ("Write a parser for CSV files in Go.", NONE),
        ("Write a class for complex numbers with addition and multiplication.", NONE),
        ("Fix the failing test in tests/test_api.py", CODE),
        ("Translate this Java method to Kotlin.", CODE),
        ("Edit the config until the linter is happy.", CODE),
        ("Write a JavaScript function to debounce events.", NONE),
        ("My code does not compile, please repair the module.", CODE),
        ("Create a Python package that wraps this API.", CODE),
        ("Solve the two-sum problem on LeetCode in Go", NONE),
        ("Improve the algorithm until the benchmark passes.", CODE),
    ],
    "self-ask": [
        ("Which university did the inventor of the World Wide Web attend?", SEARCH),
        (
            "What nationality is the wife of the actor who played James Bond in Skyfall?",
            SEARCH,
        ),
        (
            "Who directed the film that won the Palme d'Or the year Obama was first elected?",
            SEARCH,
        ),
        ("What is the currency of the country where Mount Ararat is located?", SEARCH),
        (
            "Was the architect of the Sydney Opera House older than the architect of the Guggenheim in Bilbao?",
            SEARCH,
        ),
        ("In what year did the band that recorded Paranoid Android form?", SEARCH),
        ("What language is spoken in the birthplace of Freddie Mercury?", SEARCH),
        (
            "Who succeeded the prime minister who signed the Good Friday Agreement?",
            SEARCH,
        ),
        ("Where was the mother of Alexander the Great's teacher born?", SEARCH),
        ("How many children did the first woman to win a Nobel Prize have?", SEARCH),
        ("Who is the father of the man who founded Amazon?", SEARCH),
        ("What river flows through the city where Mozart died?", SEARCH),
        ("When did the first president of Ghana die?", SEARCH),
        ("Which company owns the studio that made Toy Story?", SEARCH),
        ("How old was the author of Frankenstein when it was published?", SEARCH),
        ("Who was the monarch of the United Kingdom when the Titanic sank?", SEARCH),
        ("What is the tallest building in the hometown of LeBron James?", SEARCH),
        (
            "Where did the drummer of the band that wrote Hotel California go to school?",
            SEARCH,
        ),
        ("Who is the mother of the current king of the Netherlands?", SEARCH),
        ("What year was the company that invented the transistor founded?", SEARCH),
        ("Which country's flag has the same colours as the flag of Ireland?", SEARCH),
        ("What is the native language of the director of Parasite?", SEARCH),
        ("Who won the Super Bowl the year Justin Bieber was born?", SEARCH),
        (
            "How many people live in the capital of the largest country in Africa?",
            SEARCH,
        ),
        ("Who is the CEO of the company that acquired Instagram?", SEARCH),
        (
            "What was the first album of the band whose singer was Freddie Mercury?",
            SEARCH,
        ),
        (
            "Is the birthplace of Mozart larger than the birthplace of Beethoven?",
            SEARCH,
        ),
        ("Which team did the coach of Germany at the 2014 World Cup play for?", SEARCH),
        (
            "Who was the teacher of the philosopher who taught Alexander the Great?",
            SEARCH,
        ),
        ("In which city was the inventor of dynamite born?", SEARCH),
        ("What is the GDP of the country that hosted the 2016 Olympics?", SEARCH),
        ("When did the husband of Queen Victoria die?", SEARCH),
        ("Are the directors of Jaws and Alien from the same country?", SEARCH),
    ],
    "chain-of-thought": [
        (
            "Lisa has 5 boxes with 12 pencils each. She gives away a third. How many pencils are left?",
            NONE,
        ),
        (
            "If all roses are flowers and some flowers fade quickly, do some roses fade quickly?",
            NONE,
        ),
        ("What day of the week is it 100 days after a Tuesday?", NONE),
        ("Explain why ice floats on water.", NONE),
        (
            "A shirt costs 40 euros after a 20% discount. What was its price before?",
            NONE,
        ),
        ("Is it ethical to lie to a friend?", NONE),
        ("How does a heat pump work?", NONE),
        ("Who is older if Max was born before Ida?", NONE),
        ("Translate this sentence into French: The cat sleeps.", NONE),
        ("What should I verify before I sign a lease?", NONE),
        ("Summarise the plot of Hamlet.", NONE),
        (
            "There are 3 red, 4 blue and 5 green marbles in a bag. What is the chance of drawing a blue one?",
            NONE,
        ),
        ("What is 12 * 14 - 3?", NONE),
        ("Who wrote Faust?", NONE),
        ("Give me advice about learning the piano.", NONE),
        (
            "If it takes 5 machines 5 minutes to make 5 widgets, how long would 100 machines take to make 100 widgets?",
            NONE,
        ),
        ("Explain recursion to a child.", NONE),
        ("Is a whale a fish?", NONE),
        ("Rewrite this sentence more politely: Go away.", NONE),
        ("A farmer has 17 sheep. All but 9 die. How many are left?", NONE),
        ("What comes next: 2, 6, 12, 20?", NONE),
        ("Why do cats purr?", NONE),
        ("Compare democracy and monarchy.", NONE),
        ("Either it rains or it snows. It does not rain. What follows?", NONE),
        ("Write a birthday greeting for my aunt.", NONE),
        ("How many seconds are in a leap year?", NONE),
        (
            "Paul is twice as old as Lea was five years ago. Lea is 15. How old is Paul?",
            NONE,
        ),
        ("What is love?", NONE),
        ("Give me a synonym for happy.", NONE),
        ("If today is Monday, what day is it in 45 days?", NONE),
        ("Some dogs are pets. All pets are loved. Are some dogs loved?", NONE),
        ("How would you explain gravity?", NONE),
        (
            "A pool fills in 6 hours and drains in 8. How long does it take to fill with the drain open?",
            NONE,
        ),
        ("Who painted the Mona Lisa?", NONE),
    ],
    "critic": [
        ("Check that every claim in my essay is correct.", SEARCH),
        ("Is it true that bats are blind?", SEARCH),
        ("Verify these statements against Wikipedia.", SEARCH),
        ("Review the article below for factual mistakes.", SEARCH),
        ("Did Einstein really say this quote? Please verify the quotation.", SEARCH),
        (
            "Write a news report about the election; all figures have to be correct.",
            SEARCH,
        ),
        ("Please make sure my translation is accurate.", (spec("dictionary"),)),
        ("Debunk or confirm the following claims about vaccines.", SEARCH),
        ("Are the numbers in this report right?", SEARCH),
        ("Cross-check these references with the library catalogue.", SEARCH),
        ("Please fact check my blog post about Napoleon.", SEARCH),
        ("Is the following claim correct? Coffee stunts growth.", SEARCH),
        ("Go over this Wikipedia draft and find wrong dates.", SEARCH),
        ("Check the citations of this paper and tell me if they are real.", SEARCH),
        ("Validate the figures in the annual report.", SEARCH),
        ("Summarise the treaty; the summary must be factually accurate.", SEARCH),
        ("Check my calculation: 13 * 17 = 231. Is it right?", CODE),
        ("Verify that the quote is really by Churchill.", SEARCH),
        ("Verify every date in this timeline.", SEARCH),
        ("Tell me whether these facts about Mars are accurate.", SEARCH),
        ("Is this news story real or fake?", SEARCH),
        ("Correct the factual mistakes in my presentation.", SEARCH),
        ("Double check the statistics I quote below.", SEARCH),
        ("Write a product description; no claim in it may be wrong.", SEARCH),
        (
            "Please verify whether the sources in my thesis exist and say what I quote.",
            SEARCH,
        ),
        ("Check the facts in this speech.", SEARCH),
        ("Write about the moon landing and be sure that all dates are right.", SEARCH),
        ("Is the claim that we use only 10 % of our brain true?", SEARCH),
        ("Verify the following statement: honey never spoils.", SEARCH),
        ("Are these statistics about unemployment correct?", SEARCH),
        ("Fact check: vitamin C prevents colds.", SEARCH),
        ("Proofread this translation for wrong facts.", SEARCH),
        ("Ensure all the dates in the CV are correct.", SEARCH),
    ],
    "tree-of-thoughts": [
        ("Make 24 out of 3, 3, 8 and 8.", NONE),
        ("Fill the crossword grid from these clues.", NONE),
        ("Suggest five titles for my novel and select the most original.", NONE),
        ("Place 5 queens on a 5x5 board so that none is attacked.", NONE),
        ("Find a route that visits all six cities and is as short as possible.", NONE),
        (
            "Assign 8 students to 4 projects so that everybody gets one of their favourites.",
            NONE,
        ),
        ("Solve this cryptarithm: SEND + MORE = MONEY", NONE),
        ("Write a poem in which each line begins with a letter of LOVE.", NONE),
        ("A farmer has to cross the river with a wolf, a goat and a cabbage.", NONE),
        ("Think of creative ways to reuse old tyres.", NONE),
        ("Solve this riddle: what has keys but opens no locks?", NONE),
        ("Reach 24 with the numbers 2, 5, 8, 11.", NONE),
        ("Solve the 9x9 Sudoku given as a string.", NONE),
        ("Colour the map so that no two neighbours share a colour.", NONE),
        ("Invent a name for a robot and give me ten options first.", NONE),
        ("Generate five alternative headlines for this article.", SEARCH),
        ("Write a four-paragraph story with these end sentences: A. B. C. D.", NONE),
        ("Divide these items into two groups so that all groups weigh the same.", NONE),
        ("Find the word ladder from COLD to WARM.", NONE),
        ("Use 1, 5, 6 and 7 exactly once each with + - * / to make 21.", NONE),
        ("Solve this logic puzzle about five houses.", NONE),
        ("Brainstorm plots for a short film.", NONE),
        (
            "Design a tournament schedule in which every team meets every other team once.",
            NONE,
        ),
        ("Find a seating plan such that couples sit together.", NONE),
        ("Suggest several names for our new dog.", NONE),
        ("Find a 3x3 magic square.", NONE),
        ("Plan the tables at a wedding so that no two exes share one.", NONE),
        ("Name ideas for a fintech startup, please brainstorm.", NONE),
        ("Using the digits 1 to 9 once, make an equation that equals 100.", NONE),
        ("Game of 24 with 5 5 5 1", NONE),
        ("Brainstorm marketing ideas for a gym.", NONE),
        ("Arrange the letters A to F in a row so that no vowels are adjacent.", NONE),
        ("Solve the crossword clues below.", NONE),
        (
            "Write a sonnet whose lines begin with the letters of ELIZABETH; plan the last line first.",
            NONE,
        ),
    ],
    "thread": [
        ("Wait until the build is done, and tell me how it went.", HOME),
        ("Look again in ten minutes whether the parcel has arrived.", HOME),
        ("Remind me at noon to call Ana.", HOME),
        ("Check the door every 5 minutes, and say when it opens.", HOME),
        ("Spawn helpers for the parts, and let them ask each other.", NONE),
        ("Keep a to-do list, and stop when all is ticked off.", HOME),
        ("Delegate the sections to several agents that talk to each other.", SEARCH),
        ("Ask the supplier, wait for the answer, and haggle.", HOME),
    ],
}
CASES = [
    (task, tools, engine)
    for one in (LABELLED, MORE)
    for engine, cases in one.items()
    for task, tools in cases
]


def test_most_tasks_get_the_engine_that_their_label_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = [
        (engine, got.engine, task)
        for task, tools, engine in CASES
        if (got := recommend_engine(task, tools)).engine != engine
    ]
    right = 1 - len(wrong) / len(CASES)
    with capsys.disabled():
        print(
            f"\n  recommend_engine: {right:.0%} of {len(CASES)} tasks as labelled",
            end="",
        )

    assert len(CASES) >= 70
    assert all(len(cases) >= 10 for cases in LABELLED.values())
    assert right >= 0.85, wrong
    missed = Counter(engine for engine, _, _ in wrong)
    labels = Counter(engine for _, _, engine in CASES)
    assert {
        engine: missed[engine]
        for engine in labels
        if missed[engine] > labels[engine] / 4
    } == {}


def test_a_recommendation_says_why_and_what_else() -> None:
    assert recommend_engine("Game of 24: 1 3 4 6") == Recommendation(
        "tree-of-thoughts",
        "a puzzle: many moves have to be tried, compared and undone",
        ("chain-of-thought",),
    )
    assert recommend_engine("Turn the light on.", HOME) == Recommendation(
        "react", "it can be done with the tools, one call at a time"
    )
    assert (
        recommend_engine("Say hello.").reason
        == "there are no tools, so it is a matter of thinking"
    )


@pytest.mark.parametrize(
    "task",
    [
        "",
        " ",
        "\n",
        "hm",
        "?",
        "\x00",
        "Was ist die Hauptstadt von Österreich?",
        "🌀" * 50,
        "{}",
    ],
)
def test_what_says_nothing_goes_to_the_usual_engine(task: str) -> None:
    assert recommend_engine(task, SEARCH).engine == "react"
    assert recommend_engine(task).engine == "chain-of-thought"


@pytest.mark.parametrize("task", [None, 3, b"text", ["text"]])
def test_what_is_no_text_is_a_config_error(task: object) -> None:
    with pytest.raises(ConfigError, match="task: must be a text, got"):
        recommend_engine(task)  # type: ignore[arg-type]


def test_tools_are_known_by_their_description_too_and_may_be_given_once() -> None:
    @tool(effect="read")
    async def oracle(question: str) -> str:
        """Search the web for an answer."""
        return question

    task = "What is the birthplace of the author of The Trial?"

    assert isinstance(oracle, Tool)
    assert recommend_engine(task, [oracle]).engine == "self-ask"
    assert recommend_engine(task, iter([oracle])).engine == "self-ask"
    assert recommend_engine(task, WEATHER).engine == "react"
    assert recommend_engine(task).engine == "chain-of-thought"


def test_checking_facts_needs_something_to_check_them_with() -> None:
    task = "Fact-check this paragraph: The Eiffel Tower was built in 1899."

    assert recommend_engine(task, SEARCH).engine == "critic"
    assert recommend_engine(task).engine == "chain-of-thought"


def test_what_a_task_quotes_is_not_what_it_asks_for() -> None:
    assert (
        recommend_engine('What is the answer to "Game of 24: 1 3 4 6"?', SEARCH).engine
        == "react"
    )
    assert (
        recommend_engine(
            'Send "first collect it, then count it, then write a report" to Ana.', HOME
        ).engine
        == "react"
    )


KINDS = {  # how ovos-agentic-loop says when each of its seven loops is right, in its table and in its list
    "chain-of-thought": ("No tools, pure reasoning / arithmetic / logic", "Reasoning without tools (math, logic)"),
    "react": ("Single-turn tool use, general assistant", "General tool-using Q&A"),
    "plan-execute": ("Multi-step task with distinct, sequenced sub-goals", "Multi-step tasks requiring a plan"),
    "reflexion": ("Correctness matters; agent may fail on first attempt", "Tasks requiring self-critique and retry"),
    "self-ask": ("Multi-hop knowledge question (chain of facts)", "Compositional questions needing sub-questions"),
    "critic": ("Answer contains verifiable factual claims", "Factual tasks requiring claim verification"),
    "tree-of-thoughts": (
        "Multiple solution strategies exist; want best one", "Exploration-heavy problems (beam search)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("engine", KINDS)
def test_a_kind_of_task_gets_the_engine_that_is_for_it_with_tools_or_without(
    engine: str,
) -> None:
    found = [
        recommend_engine(kind, tools).engine
        for kind in KINDS[engine]
        for tools in (SEARCH, HOME, NONE)
    ]

    assert found == [engine] * 6


def test_every_engine_of_the_table_is_installed_and_has_a_reason() -> None:
    assert {signal.engine for signal in SIGNALS} == set(available_engines())
    assert all(signal.reason and signal.weight > 0 for signal in SIGNALS)


HOSTILE = [
    word * (256_000 // len(word))
    for word in (
        "the a ", "the ", "a, ", "first ", "'", "``", "1. ", "check ", "write ", "A, B", "please "
        "", "is it ", "x", "\n", "- ",
        "the year A", "find a way so that ", "two as ", "\u201c",
    )
]  # fmt: skip


@pytest.mark.parametrize("task", HOSTILE, ids=lambda task: task[:8])
def test_of_a_long_task_only_the_beginning_counts(task: str) -> None:
    assert recommend_engine(task, SEARCH).engine in available_engines()
