"""KnowledgeContract: what every store of knowledge guarantees."""

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...errors import ConfigError
from ...knowledge.base import Forget, Knowledge, Relation, Remembered
from ..assertions import assert_equal, assert_true, expect_error

SCOPE = "acme"
WORDS = (
    "harbour",
    "violin",
    "glacier",
    "lantern",
    "pepper",
    "saddle",
    "meadow",
    "copper",
)


class _Contract(Protocol):
    def knowledge(self, folder: Path, *, shared: bool = False) -> Knowledge: ...


def with_store(
    check: Callable[[Any, Knowledge], Coroutine[Any, Any, None]],
) -> Callable[[_Contract, Path], None]:
    """A check of a store as a test that opens it in a folder of its own, and closes it."""

    def test(self: _Contract, tmp_path: Path) -> None:
        async def work() -> None:
            store = self.knowledge(tmp_path)
            try:
                await check(self, store)
            finally:
                await store.close()

        asyncio.run(work())

    for name in ("__name__", "__qualname__", "__doc__"):  # and no `__wrapped__`
        setattr(test, name, getattr(check, name))
    return test


def fact(text: str, **options: Any) -> Remembered:
    """An item of the scope that the checks use."""
    given: dict[str, Any] = {"scope": SCOPE, **options}
    return Remembered(text, **given)


async def texts(store: Knowledge, query: str, **options: Any) -> list[str]:
    """The texts that a search finds, the best first."""
    given: dict[str, Any] = {"scope": SCOPE, "threshold": 0.0, **options}
    found = await store.search(query, **given)
    return [item.text for item in found]


class KnowledgeContract:
    """Subclass it in a test module as `Test…` and give it your store; every check is a test of its own.

    class TestMyKnowledge(KnowledgeContract):
        def knowledge(self, folder: Path, shared: bool = False) -> Knowledge:
            return MyKnowledge(folder / "memory", shared=shared)
    """

    finds_related = False
    """Whether your store also finds items without a word of the query, as one does that searches by vectors."""

    def knowledge(self, folder: Path, *, shared: bool = False) -> Knowledge:
        """Return a store whose files, if it has any, are in `folder`; an empty one for an empty folder."""
        raise NotImplementedError

    @with_store
    async def test_what_was_stored_is_found_with_all_that_it_says(
        self, store: Knowledge
    ) -> None:
        """Text, kind, topic, label, origin and scope come back; the score is between 0 and 1."""
        item = fact(
            "The violin is in the attic.", kind="place", topic="violin", label="secret", untrusted=True,
            source_run="r1", source_key="2#0",
        )  # fmt: skip
        id = await store.store(item, key="1")
        [found] = await store.search("where is the violin", scope=SCOPE)

        fields = (
            "text",
            "kind",
            "topic",
            "label",
            "untrusted",
            "source_run",
            "source_key",
            "scope",
        )
        for field in fields:
            assert_equal(getattr(found, field), getattr(item, field), field)
        assert_equal(found.id, id, "the id")
        assert_true(0 < found.score <= 1, f"the score is {found.score}")
        assert_true(found.valid_from is not None, "it has no time since when it holds")

    @with_store
    async def test_category_and_tags_narrow_a_search_and_come_back_with_relations(
        self, store: Knowledge
    ) -> None:
        """An item has its marks; a search can ask for a category, and for tags that an item has all of."""
        lives = (Relation("lives in", "Bergen"), Relation("knows", "Ada"))
        one = fact("A violin of Ada.", category="music", tags=("old", "loud"), relations=lives)  # fmt: skip
        await store.store(one, key="1")
        await store.store(
            fact("A violin case.", category="bags", tags=("old",)), key="2"
        )
        await store.store(fact("A violin bow."), key="3")
        [found] = await store.search("violin", scope=SCOPE, category="music", threshold=0.0)  # fmt: skip

        assert_equal(found.category, "music", "the category")
        assert_equal(
            (found.tags, found.relations), (("old", "loud"), lives), "the marks"
        )
        for tags, expected in (
            ((), 3), (("old",), 2), (("old", "loud"), 1), (("new",), 0), (("ol",), 0)
        ):  # fmt: skip
            count = len(await texts(store, "violin", tags=tags))
            assert_equal(count, expected, f"items with the tags {tags}")

    @with_store
    async def test_the_same_item_twice_has_the_tags_and_relations_of_both(
        self, store: Knowledge
    ) -> None:
        """It is one item, and what either said of it is there."""
        at, of = Relation("stands in", "hall"), Relation("belongs to", "Ada")
        await store.store(
            fact("The lantern.", tags=("a", "b"), relations=(at,)), key="1"
        )
        await store.store(
            fact("The lantern.", category="light", tags=("b", "c"), relations=(of, at)), key="2"
        )  # fmt: skip
        [found] = await store.search("lantern", scope=SCOPE)

        assert_equal(sorted(found.tags), ["a", "b", "c"], "the tags")
        assert_equal(set(found.relations), {at, of}, "the relations")
        assert_equal(found.category, "light", "the category")

    @with_store
    async def test_a_key_stores_once(self, store: Knowledge) -> None:
        """A repeated call gives the same id and stores nothing, whatever its text."""
        first = await store.store(fact("The harbour is closed."), key="1")
        again = await store.store(fact("The harbour is open."), key="1")

        assert_equal(again, first, "the id")
        assert_equal(
            await texts(store, "harbour"), ["The harbour is closed."], "the items"
        )

    @with_store
    async def test_the_same_item_twice_is_one(self, store: Knowledge) -> None:
        """Under two keys it is stored once, with the higher label, and untrusted if either is."""
        await store.store(fact("I like pepper.", kind="preference"), key="1")
        await store.store(
            fact("I like pepper.", kind="preference", label="secret", untrusted=True),
            key="2",
        )
        found = await store.search("pepper", scope=SCOPE)

        labels = [(item.label, item.untrusted) for item in found]
        assert_equal(labels, [("secret", True)], "label and origin")

    @with_store
    async def test_a_later_item_of_a_topic_supersedes(self, store: Knowledge) -> None:
        """Searches find what holds; the history has both, with their times."""
        await store.store(fact("Ada lives in Oslo.", topic="ada|lives in"), key="1")
        id = await store.store(
            fact("Ada lives in Bergen.", topic="ada|lives in"), key="2"
        )

        assert_equal(
            await texts(store, "where does Ada live"), ["Ada lives in Bergen."], "found"
        )
        versions = await store.history(id)
        assert_equal(
            [(one.text, one.valid_to is None) for one in versions],
            [("Ada lives in Oslo.", False), ("Ada lives in Bergen.", True)],
            "the history",
        )
        assert_equal(versions[0].valid_to, versions[1].valid_from, "the time")

    @with_store
    async def test_topics_of_other_kinds_and_scopes_are_left(
        self, store: Knowledge
    ) -> None:
        """An item supersedes only within its scope and kind."""
        await store.store(fact("copper one", topic="t"), key="1")
        await store.store(fact("copper two", topic="t", kind="other"), key="2")
        await store.store(fact("copper three", topic="t", scope="else"), key="3")

        assert_equal(
            sorted(await texts(store, "copper")), ["copper one", "copper two"], "found"
        )

    @with_store
    async def test_a_scope_sees_itself_and_what_is_inside(
        self, store: Knowledge
    ) -> None:
        """Neither its neighbours nor what is around it, nor a scope whose name only begins alike."""
        for scope in ("acme", "acme/berlin", "acme/oslo", "acme2", "other", "acm"):
            await store.store(fact("a lantern", scope=scope), key=scope)

        async def scopes(scope: str) -> list[str]:
            found = await store.search("lantern", scope=scope, limit=50)
            return sorted(item.scope for item in found)

        assert_equal(await scopes("acme"), ["acme", "acme/berlin", "acme/oslo"], "acme")
        assert_equal(await scopes("acme/berlin"), ["acme/berlin"], "acme/berlin")
        assert_equal(await scopes("unknown"), [], "an unknown scope")

    @with_store
    async def test_without_a_scope_a_store_that_is_not_shared_refuses(
        self, store: Knowledge
    ) -> None:
        """Neither stored nor found: every scope would have it."""
        with expect_error(ConfigError, "an item without a scope was stored"):
            await store.store(Remembered("a meadow"), key="1")
        with expect_error(ConfigError, "a search without a scope was allowed"):
            await store.search("meadow")

    def test_a_shared_store_has_items_of_every_scope(self, tmp_path: Path) -> None:
        """What has no scope is found in each; what has one is found there alone."""

        async def work() -> None:
            store = self.knowledge(tmp_path, shared=True)
            await store.store(Remembered("a saddle for all"), key="1")
            await store.store(fact("a saddle of acme"), key="2")

            assert_equal(
                await texts(store, "saddle", scope=""),
                ["a saddle for all"],
                "without a scope",
            )
            assert_equal(len(await texts(store, "saddle")), 2, "in the scope")
            assert_equal(
                await texts(store, "saddle", scope="b"),
                ["a saddle for all"],
                "in another",
            )
            await store.close()

        asyncio.run(work())

    @with_store
    async def test_kinds_limit_and_threshold_narrow_a_search(
        self, store: Knowledge
    ) -> None:
        """The best are first, and none is below the threshold."""
        for number, word in enumerate(WORDS):
            kind = "even" if number % 2 == 0 else "odd"
            await store.store(fact(f"meadow {word}", kind=kind), key=word)
        found = await store.search(
            "meadow glacier", scope=SCOPE, threshold=0.0, limit=3
        )

        assert_equal(found[0].text, "meadow glacier", "the best")
        assert_equal(len(found), 3, "the number")
        scores = [item.score for item in found]
        assert_equal(scores, sorted(scores, reverse=True), "the order of the scores")
        even = await store.search("meadow", kinds=["even"], scope=SCOPE, limit=50)
        assert_equal({item.kind for item in even}, {"even"}, "the kinds")
        assert_equal(
            await texts(store, "meadow zither quartz", threshold=0.9),
            [],
            "above the threshold",
        )

    @with_store
    async def test_what_is_forgotten_is_gone(self, store: Knowledge) -> None:
        """No search or history has it, nor does storing it again under its key bring it back."""
        await store.store(fact("Ada likes glaciers.", topic="ada"), key="1")
        id = await store.store(fact("Ada likes meadows.", topic="ada"), key="2")
        await store.store(fact("Bob likes saddles.", source_run="r2"), key="3")

        assert_equal(await store.forget(id=id), 2, "forgotten, with its history")
        assert_equal(await store.forget(source_run="r2"), 1, "forgotten of a run")
        again = await store.store(fact("Ada likes meadows.", topic="ada"), key="2")
        for query in ("Ada", "glaciers", "meadows", "saddles"):
            assert_equal(await texts(store, query), [], query)
        assert_equal(list(await store.history(id)), [], "the history")
        assert_equal(again, "", "the id of what is forgotten")

    @with_store
    async def test_forgetting_everything_by_no_condition_is_refused(
        self, store: Knowledge
    ) -> None:
        """An empty condition is a mistake, and so is a scope of slashes alone, which is none."""
        await store.store(fact("a meadow"), key="1")
        with expect_error(ConfigError, "it forgot without a condition"):
            await store.forget()
        with expect_error(ConfigError, "it forgot what is in each scope"):
            await store.forget(scope="/", kind="fact")

        assert_equal(await texts(store, "meadow"), ["a meadow"], "what is left")

    @with_store
    async def test_hostile_queries_and_texts_do_no_harm(self, store: Knowledge) -> None:
        """Quotes, operators, wildcards, zeros and other alphabets are words or nothing."""
        await store.store(fact("ünï ☃ \"quoted\" 'single' NEAR(a b) OR *"), key="1")
        for query in (
            '"',
            "'",
            "* OR *",
            "NEAR(",
            "a AND",
            "scopes : x",
            "\0",
            "",
            "☃",
            "text:a^2",
            "x" * 9000,
        ):
            await store.search(query, scope=SCOPE)

        assert_equal(len(await texts(store, "quoted")), 1, "found")
        assert_equal(len(await texts(store, "ÜNÏ")), 1, "found in any case")

    @with_store
    async def test_no_score_is_above_the_one_before_it_or_below_the_threshold(
        self, store: Knowledge
    ) -> None:
        """However a store ranks: what is returned is in the order of its scores."""
        for first, second in itertools.product(WORDS, WORDS):
            text = f"the {first} beside a {second}"
            await store.store(fact(text), key=text)
        for threshold in (0.0, 0.3, 0.6):
            found = await store.search(
                "copper lantern meadow", scope=SCOPE, threshold=threshold, limit=50
            )
            scores = [item.score for item in found]
            assert_equal(scores, sorted(scores, reverse=True), "the order")
            assert_true(
                min(scores, default=1.0) >= threshold, f"one is below {threshold}"
            )

    @with_store
    async def test_random_histories_keep_nothing_that_was_forgotten(
        self, store: Knowledge
    ) -> None:
        """Stored, superseded and forgotten in any order: 0 hits for what is gone, and what holds is found."""
        source = random.Random(1)  # noqa: S311 - the same every time
        related = self.finds_related
        await check_history(store, source, steps=80, finds_related=related)


async def check_history(
    store: Knowledge,
    source: random.Random,
    *,
    steps: int,
    scope: str = SCOPE,
    finds_related: bool = False,
) -> list[str]:
    """Do random things to a scope of a store, and compare it with a plain list; return the words that were forgotten.

    With `finds_related`, a search for a word that is gone may find others.
    """
    holding: dict[str, Remembered] = {}
    gone: list[str] = []
    ended: dict[str, list[str]] = {}
    for step in range(steps):
        word = f"word{source.getrandbits(48):012x}"
        chance = source.random()
        if chance < 0.65 or not holding:
            topic = source.choice(("", "", "a", "b", "c"))
            item = Remembered(
                word, topic=topic, scope=scope, source_run=f"run{step % 5}"
            )
            id = await store.store(item, key=f"{scope} {step}")
            before = next(
                (k for k, v in holding.items() if topic and v.topic == topic), None
            )
            if before is not None:
                ended[id] = [*ended.pop(before, []), holding.pop(before).text]
            holding[id] = item
        else:
            id = source.choice(sorted(holding))
            lost = [holding.pop(id).text, *ended.pop(id, [])]
            await _check_forgetting(store, id, len(lost))
            gone += lost
    superseded = [text for texts in ended.values() for text in texts]
    with expect_error(ConfigError, "a condition without a value was allowed"):
        Forget()
    await _check_found(store, scope, [*gone, *superseded], holding, finds_related)
    return gone


async def _check_forgetting(store: Knowledge, id: str, versions: int) -> None:
    """Forget an item with its earlier versions, and check that nothing is left of it."""
    assert_equal(await store.forget(id=id), versions, "forgotten")
    assert_equal(list(await store.history(id)), [], "the history of what is gone")


async def _check_found(
    store: Knowledge,
    scope: str,
    gone: Sequence[str],
    holding: Mapping[str, Remembered],
    finds_related: bool,
) -> None:
    """Check that searches find what holds, and nothing that is gone."""
    held = {item.text for item in holding.values()} if finds_related else set[str]()
    for text in gone:
        hits = await store.search(text, scope=scope, threshold=0.0)
        assert_equal([one.text for one in hits if one.text not in held], [], text)
    for id, item in holding.items():
        [found] = await store.search(item.text, scope=scope)
        assert_equal(found.id, id, "the id of what holds")
