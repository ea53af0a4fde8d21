"""Entries of the catalogue: TOML files that say where a bank's questions and parameters are.

Each entry is one file. A group of files (`questions`, `parameters`, `few_shot`, `answers`) lists
places of the same content, of which the first that can be reached is used. An entry of agents has
one group, `responses`: the tasks that each agent solved, which are calibrated here.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, ValidationError
from pydantic import model_validator as pydantic_model_validator

from app.errors import InvalidInputError, UnknownNameError
from app.exchange.catalog.rows import template
from app.shapes import Input
from app.validation import problems_of

_BUILT_IN = Path(__file__).parent / "entries"
#: Most bytes of an entry; our largest entry has three thousand.
_MAX_BYTES = 256 * 1024
#: Hosts that a URL without TLS may name, for tests against a server on this machine.
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")

Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]+$")]
Sha1 = Annotated[Hex, StringConstraints(min_length=40, max_length=40)]
Sha256 = Annotated[Hex, StringConstraints(min_length=64, max_length=64)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,99}$")]


_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./ -]{0,499}")


def _inside(path: str) -> str:
    if ".." in path or _PATH.fullmatch(path) is None:
        raise ValueError(
            "expected a path of letters, digits and _ - . / that stays where it begins, got "
            f"{path!r:.100}"
        )
    return path


#: Name of a repository of the hub, or a path inside a repository.
RelativePath = Annotated[str, AfterValidator(_inside)]


class Source(Input):
    """One place of a file: a URL, a file of a repository, or a file beside the entry.

    Attributes:
        url: URL, `https`, or `http` to this machine.
        dataset: Repository of the hub, `owner/name`, with `revision` (a commit) and `path` in it.
        github: Repository of GitHub, with `revision` and `path` as well.
        file: Path relative to the folder of the entry.
        git_blob: Git's id of the content (SHA-1).
    """

    url: Annotated[str, StringConstraints(pattern=r"^https?://", max_length=2000)] | None = None
    dataset: RelativePath | None = None
    github: RelativePath | None = None
    revision: Sha1 | None = None
    path: RelativePath | None = None
    file: RelativePath | None = None
    git_blob: Sha1 | None = None
    sha256: Sha256 | None = None

    @pydantic_model_validator(mode="after")
    def _one_place(self) -> Self:
        places = ("url", "dataset", "github", "file")
        given = [name for name in places if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of {', '.join(places)}, got {given or 'none'}")
        in_repository = given[0] in ("dataset", "github")
        if {self.path is not None, self.revision is not None} != {in_repository}:
            raise ValueError("dataset or github, revision and path come together")
        if self.url is not None:
            parts = urlsplit(self.url)
            if parts.scheme != "https" and parts.hostname not in _LOCAL_HOSTS:
                raise ValueError(f"expected an https URL, got {self.url!r}")
            if "@" in parts.netloc:  # the password would be shown with the bank
                raise ValueError("expected a URL without a user and password")
        return self

    @property
    def address(self) -> str | None:
        """The URL of a file that is fetched directly, without the hub's library."""
        if self.github is None:
            return self.url
        return f"https://raw.githubusercontent.com/{self.github}/{self.revision}/{self.path}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names that the file may have in a folder, the most exact first."""
        if self.url is not None:
            return (PurePosixPath(unquote(urlsplit(self.url).path)).name,)
        parts = PurePosixPath(self.path or self.file or "").parts
        return tuple("/".join(parts[start:]) for start in range(len(parts)))

    @property
    def origin(self) -> str:
        """Place of the file, for people."""
        if self.dataset is not None:
            return f"{self.path} of dataset {self.dataset} at {self.revision}"
        if self.github is not None:
            return f"{self.path} of github.com/{self.github} at {self.revision}"
        return self.url or str(self.file)


class Files(Input):
    """The same content in one or several places."""

    #: Whether a file at a URL needs a hash that identifies its content.
    by_hash: ClassVar[bool] = True

    files: Annotated[tuple[Source, ...], Field(min_length=1, strict=False)]

    @pydantic_model_validator(mode="after")
    def _hashed(self) -> Self:
        if self.by_hash and any(
            source.address and not (source.git_blob or source.sha256) for source in self.files
        ):
            raise ValueError("a URL needs a hash of its content: git_blob or sha256")
        return self


class Questions(Files):
    """The split whose rows are asked; `rows` is how many it has."""

    rows: Annotated[int, Field(ge=1, le=1_000_000)]
    split: Text


class Parameters(Files):
    """Published item parameters: of how many items, and on which theta scale."""

    items: Annotated[int, Field(ge=1, le=200_000)]
    scale: Text | None = None
    response_model: Literal["1pl", "2pl", "3pl", "4pl"] | None = None


class Responses(Files):
    """The tasks that each agent solved: number of tasks, and least number of agents.

    No hash is needed: the revision identifies the content, and every answer of the file is checked.
    """

    by_hash = False

    tasks: Annotated[int, Field(ge=1, le=200_000)]
    agents: Annotated[int, Field(ge=3, le=1_000_000)]


class Join(Input):
    """How parameters are assigned to rows of the split.

    Attributes:
        name: Form of the parameters' names; `{place}` stands for a number.
        order: Order in which rows are numbered: `rows` as in the split, or `shuffled` by Python's
            `random.Random(seed).shuffle` of the list of all rows.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[^{}]*\{place\}[^{}]*$")] = "{place}"
    first: Literal[0, 1] = 1
    order: Literal["rows", "shuffled"] = "rows"
    seed: int | None = None
    evidence: Text | None = None

    @pydantic_model_validator(mode="after")
    def _seeded(self) -> Self:
        if (self.order == "shuffled") != (self.seed is not None):
            raise ValueError("a seed belongs to the order `shuffled`, and to no other")
        return self


class Layout(Input):
    """How examples and question become one text, as the harness wrote them."""

    question: str = "Question: "
    answer: str = "\n\nAnswer:"
    gap: str = " "
    separator: str = "\n\n"


class Scorer(Input):
    """The scorer of the items."""

    name: Text
    params: dict[str, Any] = Field(default_factory=dict)


def _scorer(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


class ItemForm(Input):
    """How a row becomes an item; texts are templates over the row's fields.

    Attributes:
        target: The right answer of an item without options.
        choices: Templates of the options, or the name of a field that lists them.
        clean: Filter that is applied to each listed option.
        answer: Field that names the right option by its label, or by its number from `first`.
        labels: Field that lists the options' labels.
        example: Answer of a few-shot example; by default the right option or target.
        blank: Mark that each option replaces, to compare the likelihoods of the text behind it.
        layout: How the turns become one text for endpoints without chat.
    """

    prompt: Text
    target: Text | None = None
    choices: Annotated[tuple[Text, ...], Field(strict=False, min_length=2)] | Text | None = None
    clean: Text | None = None
    answer: Text | None = None
    labels: Text | None = None
    first: Literal[0, 1] = 0
    example: Text | None = None
    tags: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    scorer: Annotated[Scorer | None, BeforeValidator(_scorer)] = None
    free_instruction: str | None = None
    blank: str = ""
    layout: Layout | None = None
    choice_instruction: str | None = None

    @pydantic_model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if (self.choices is None) == (self.target is None):
            raise ValueError("expected either a target, or choices with an answer")
        if (self.choices is None) != (self.answer is None):
            raise ValueError("choices and answer come together")
        for name in ("prompt", "target", "example"):
            if (text := getattr(self, name)) is not None:
                template(text)
        return self


class FewShot(Files):
    """Worked examples before each question: how many, and the file they are taken from first.

    Attributes:
        rows: Number of rows of the training file, if it is known.
    """

    files: Annotated[tuple[Source, ...], Field(strict=False)] = ()
    number: Annotated[int, Field(ge=0, le=100)]
    rows: Annotated[int, Field(ge=1)] | None = None


class Asked(Input):
    """How the answers were obtained from which the parameters were estimated.

    Attributes:
        mode: `generate`, a written answer that is scored, or `loglikelihood`, the likeliest option.
        normalise: Whether an option's log-likelihood was divided by its length.
        unparsed: How an unparsed answer was counted.
    """

    mode: Literal["generate", "loglikelihood"]
    shots: Annotated[int, Field(ge=0)]
    normalise: Literal["none", "bytes"] | None = None
    unparsed: Literal["wrong", "missing"] | None = None
    scorer: Text
    source: Text


class Size(NamedTuple):
    """Size of an entry's bank.

    Attributes:
        rows: Number of rows of the questions' split; number of tasks for agents.
        items: Number of items with published parameters, or of tasks that are calibrated here.
        split: Name of the split; None for a benchmark of agents.
        agents: Least number of agents that are calibrated here; None with published parameters.
    """

    rows: int
    items: int
    split: str | None = None
    agents: int | None = None


class _Named(Input):
    """Fields of all entries."""

    name: Name
    title: Text
    description: str = ""
    licence: Text
    homepage: Text | None = None
    visibility: Literal["open", "withheld"] = "open"


class AgentsEntry(_Named):
    """A benchmark of agents: ids of tasks, calibrated here from the tasks that agents solved.

    Attributes:
        homepage: Page where the tasks are published, as the bank does not have their text.
    """

    visibility: Literal["open"] = "open"
    responses: Responses

    @property
    def size(self) -> Size:
        """Numbers of tasks and agents."""
        tasks = self.responses.tasks
        return Size(tasks, tasks, agents=self.responses.agents)

    def groups(self) -> Iterator[tuple[str, Files, bool]]:
        """Name of the only group, its files, and whether they are needed."""
        yield "responses", self.responses, True


class Entry(_Named):
    """A bank of questions whose parameters were published."""

    parameters_licence: Text | None = None
    questions: Questions
    parameters: Parameters
    join: Join
    item: ItemForm
    few_shot: FewShot | None = None
    answers: Files | None = None
    asked: Asked

    @pydantic_model_validator(mode="after")
    def _askable(self) -> Self:
        if self.asked.mode == "loglikelihood" and self.item.choices is None:
            raise ValueError("asked.mode `loglikelihood` compares options: item has no choices")
        return self

    @property
    def size(self) -> Size:
        """Numbers of rows, items and agents."""
        return Size(self.questions.rows, self.parameters.items, self.questions.split)

    @property
    def form_hash(self) -> str:
        """SHA-256 of all that decides the items and how they are asked, not of files' places."""
        form = {
            "split": (self.questions.split, self.questions.rows),
            "join": self.join.model_dump(mode="json", exclude={"evidence"}, exclude_defaults=True),
            "item": self.item.model_dump(mode="json", exclude_defaults=True),
            "asked": self.asked.model_dump(mode="json", exclude={"source"}, exclude_defaults=True),
            "shots": self.few_shot and self.few_shot.number,
        }
        return sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()

    def groups(self) -> Iterator[tuple[str, Files, bool]]:
        """Name of each group that has files, its files, and whether they are needed."""
        yield "questions", self.questions, True
        yield "parameters", self.parameters, True
        if self.few_shot is not None and self.few_shot.files:
            yield "few_shot", self.few_shot, False
        if self.answers is not None:
            yield "answers", self.answers, False


class Listed(NamedTuple):
    """An entry, the folder it stands in, and whether that is the operator's own."""

    entry: Entry | AgentsEntry
    folder: Path
    own: bool


def read_entry(content: bytes, name: str) -> Entry | AgentsEntry:
    """Read an entry, TOML.

    Raises:
        InvalidInputError: Not TOML, or an entry with faults, which are listed with their places.
    """
    if len(content) > _MAX_BYTES:
        raise InvalidInputError(f"{name}: expected at most {_MAX_BYTES} bytes, got {len(content)}.")
    try:
        fields = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as exc:
        raise InvalidInputError(f"{name}: expected TOML, got a fault: {exc}.") from None
    try:
        return (AgentsEntry if "responses" in fields else Entry).model_validate(fields)
    except ValidationError as exc:
        problems = problems_of(exc.errors(include_url=False))
        first = problems[0]
        raise InvalidInputError(
            f"{name} is no entry of a catalogue: {first.pointer or '/'}: "
            f"{first.detail.removesuffix('.')}.",
            problems=problems,
        ) from None


def entry_of(fields: Any) -> Entry:
    """Read an entry that `Entry.model_dump(mode="json")` wrote."""
    return Entry.model_validate(fields, strict=False)


def read_catalogue(own: Path | None = None) -> dict[str, Listed]:
    """All entries by name; an entry in the operator's own folder replaces ours of the same name.

    Raises:
        InvalidInputError: The folder does not exist, or holds a file that is not an entry.
    """
    found: dict[str, Listed] = {}
    for folder in (_BUILT_IN, own):
        if folder is None:
            continue
        try:
            files = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
            entries = [read_entry(path.read_bytes(), path.name) for path in files]
        except OSError as exc:
            raise InvalidInputError(
                f"SEXTANT_CATALOG: {exc.filename or folder}: cannot be read: {exc.strerror}."
            ) from exc
        names: set[str] = set()
        for path, entry in zip(files, entries, strict=True):
            if entry.name in names:
                raise InvalidInputError(f"{path.name}: {entry.name!r} is in this folder twice.")
            names.add(entry.name)
            found[entry.name] = Listed(entry=entry, folder=folder, own=folder is not _BUILT_IN)
    return dict(sorted(found.items()))


def pick(catalogue: dict[str, Listed], name: str) -> Listed:
    """The entry of this name.

    Raises:
        UnknownNameError: There is no such entry.
    """
    if name not in catalogue:
        raise UnknownNameError("entry of the catalogue", name, catalogue)
    return catalogue[name]


def wanted_files(files: Sequence[Source]) -> str:
    """Text that names files for people: `NAME (from PLACE), or NAME (from PLACE)`."""
    return ", or ".join(f"{source.names[-1]} (from {source.origin})" for source in files)
