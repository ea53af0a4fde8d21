r"""Answers that earn no credit, and answers that do, for each scorer.

`{r}` is the right answer and `{w}` a wrong one; bars separate forms, "\n" is a line break in one.
"""

from collections.abc import Iterator, Mapping


def texts(block: str) -> list[str]:
    """Return the answers of a table."""
    lines = block.strip("\n").split("\n")
    return [text.replace("\\n", "\n") for line in lines for text in line.split(" | ")]


def forms(block: str, right: str, wrong: str) -> list[str]:
    """Return the answers of a table of forms."""
    return [text.format(r=right, w=wrong) for text in texts(block)]


def pairs(table: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Return each target with each of its answers."""
    return ((target, text) for target, block in table.items() for text in texts(block))


#: The right answer is named and taken back, or never claimed.
TAKEN_BACK = r"""
{r}. No, {w}. | {r}? No, {w}. | {r}, no, {w} | {r}; no, {w}. | {r} – no, {w}. | {r} - no, {w}.
{r}... no, {w}. | {r}! No, {w}! | {r}. No. {w}. | {r}. No! {w}! | {r}. No wait, {w}.
{r}. No, wait: {w}. | {r}. No, it is {w}. | {r}. No, it's {w}. | {r}. No, the answer is {w}.
{r}. No, that's wrong. {w}. | {r}. No, not {r}. {w}. | {r}. No, it is not {r}. | {r}. Nope, {w}.
{r}. Oh no, {w}. | {r}. Oh, wait, {w}. | {r}. Wait, {w}. | {r}, wait, {w} | {r}. Wait, no. {w}.
{r}. Wait, it is {w}. | {r}. Wait: {w}. | {r}. But wait, {w}. | {r}. Hmm, wait, {w}.
{r}. Actually, {w}. | {r}. Actually, it is {w}. | {r}. Actually: {w} | {r}, actually {w}
{r}. Actually no, {w}. | {r}. Hmm, {w}. | {r}. Make that {w}. | {r}. Sorry, {w}.
{r}. I'm sorry, {w}. | {r}, sorry, {w}. | {r}. Oops, {w}. | {r}. Correction: {w}.
{r}. I mean, {w}. | {r}. I meant: {w}. | {r}. Rather, {w}. | {r}, or rather, {w}.
{r}. Scratch that. {w}. | {r}. Scratch that, {w}. | {r}. Strike that; {w}.
{r}. Just kidding, {w}. | {r}. Just kidding! | {r}. I lied. | {r}. My mistake: {w}.
{r}. I take that back. | {r}. I was wrong. {w}. | {r}. On second thought, {w}.
The answer is {r}. No, {w}. | The answer is {r}. Wait, the answer is {w}.
The answer is {r}. That is wrong. | The answer is {r}, but that is wrong. | Answer: {r}\nNo, {w}
Answer: {r}\nWait, {w}. | Answer: {r}. That's incorrect. | Answer: {r} is wrong. | Answer: not {r}
The answer is not {r}. | {r} is wrong | {r} is wrong. | {r} is incorrect. | {r} is not the answer.
{r} isn't the right answer. | {r} is not correct. | {r} was a joke. | not {r} | Not {r}.
Not {r}, but {w} | It is not {r}. | It isn't {r}. | {w}, not {r} | {w} rather than {r}
{w} instead of {r}. | I don't think it is {r}. | Neither {r} nor {w}.
I first thought {r}, but it is {w} | I initially thought it was {r}, but it is {w}.
At first I thought {r}, but it's {w}. | {r}? Wrong. | {r}. False. | {r} – wrong.
{r} would be wrong. | {r}. On reflection, {w}. | {r}. Instead: {w} | {r}. Nein, {w}.
{r}. Um, no, {w}. | Anything but {r} | I doubt it is {r}. | {r}, but really {w}
{r} but really {w} | {r}, but actually {w} | {r}, but in fact {w}. | {r}, or actually {w}
{r} (no, {w}) | {r} (wait, no: {w}) | {r} [wait, {w}] | {r}, I mean {w} | {r}. I mean {w}.
{r}, er, {w} | {r}. Or rather {w}. | {r}. Actually, no. | {r}. Not really. | {r}? Not at all.
{r}? No way. | {r}? Never. | {r}. My apologies, {w}. | {r}. Apologies: {w}.
{r}. That answer is wrong. | {r} is the wrong answer. | {r} is an incorrect answer. | {r} is out.
{r} (wrong) | {r} (incorrect) | {r}. Let me correct myself: {w}. | {r}. Let me rephrase: {w}.
{r}. I retract that. {w}. | {r}. Ignore that. {w}. | {r}. Disregard that: {w}.
{r}. Never mind, {w}. | {r}. No, {w}, not {r}. | {r}. Actually {w}, not {r}. | It cannot be {r}.
Anywhere but {r} | All but {r} | {r}. Actually, {r}s.
"""

#: More valid claims of the right answer, for scorers that search the whole answer.
UPHELD = """
Not {w} but {r} | Not {w}, but {r}. | It is not {w}; {r} | It is not {w}, it is {r}.
It isn't {w}. It is {r}. | There is no doubt: {r} | No doubt about it: {r}. | {r}, no question.
{r}, of course. | {r}, not {w} | {r}, not {w}. | {r} rather than {w} | {w} is wrong. {r}
{w}? No, {r}. | {w}. No, {r}. | {w}, no, wait, {r}. | {w}. Actually, {r}.
I first thought {w}, but it is {r} | The answer is {r}, I believe. | So the answer is {r}.
I think the answer is {r}. | {r} is correct. | {r} is right, {w} is wrong.
Never mind the rest: {r} | Without question, {r}. | No wonder: {r}. | It cannot be {w}, so {r}.
It must be {r}! | It is {r}. | It's {r} | Well, {r}. | Hmm, {r}. | Oh, {r}! | Nobody doubts it: {r}.
{r}, really. | {r}, actually. | {r}, but really any answer would do for this joke. | {r} (not {w})
{r} (no doubt) | Nothing but {r} | None other than {r}. | Not only {r} | {r} is not in doubt.
{r} is not wrong. | It isn't wrong: {r} | {r} cannot be wrong.
"""

#: Valid claims on their own, as `exact` needs them.
UPHELD_EXACT = r"""
{r} | {r}. | {r}! | **{r}** | *{r}* | "{r}" | '{r}' | `{r}` | ({r}) |   {r}
{r}. It is well known. | {r}. No doubt. | {r}. No doubt about it. | {r}. No question about it.
{r}. No other fits. | {r}. No, it is not {w}. | {r}. No, seriously. | {r}. No, really.
{r}. Not {w}. | {r}. {w} is wrong. | {r}. It is not {w}. | {r}. It is not true that it is {w}.
{r}. It is wrong to say {w}. | {r}. That is right. | {r}. That is correct. | {r}. It's correct.
{r}. Wait, let me check that. Yes. | {r}. Wait, that is correct.
{r}. Hmm, I am fairly sure of that. | {r}. Actually, this has been known for a very long time.
{r}. Actually, I am sure. | {r}. Actually, it has been so for centuries.
{r}. Actually, {r} since 987. | {r}. Well, actually {r} since 987. | {r}. Hmm, {r}.
{r}. Well, really beautiful. | {r}. In fact, since 987. | {r}. Never mind the others.
{r}. Ignore the rest. | {r}. Rather obvious. | {r}. Sorry that it took so long.
{r}. Sorry for the delay. | {r}! No wonder. | {r}? Yes. | Answer: {r} | Answer: {r}.
Answer: **{r}** | **Answer:** {r} | No. Answer: {r} | The answer is {r} | The answer is {r}.
The answer is **{r}**. | The answer is "{r}". | The answer is {r}. It is not {w}.
The answer is {r}. No doubt. | The answer is not {w} but {r}.
The answer is not {w}. The answer is {r}. | The answer is {w}. No wait, the answer is {r}.
Is it {w}? No, for it lies elsewhere. The answer is {r}. | Wait, let me see. The answer is {r}.
There is no doubt: the answer is {r}. | I first thought {w}, but the answer is {r}.
Final answer: {r} | <answer>{r}</answer> | \boxed{{{r}}} | It is \boxed{{{r}}}, not {w}.
It's not {w}. Therefore: \boxed{{{r}}} | It is **{r}**, clearly | {r}. Hmm, good question.
{r}. Actually, good question! | {r}. Sorry, no further explanation.
{r}. It is wrong, though common, to say {w}. | {r}. Wait, is that right? Yes.
The answer is {r}.\n\nHmm, that was easy. | The answer is {r}.\n\nNo, there is no trick here.
"""

#: Targets that look like a retraction, and answers that state them.
NEGATIVES = {
    "No": r"""
No | No. | no | **No** | Answer: No | The answer is: No. | No. It is not so. | Let me think.\nNo
Let me think. It has two divisors.\nNo. | Is 9 prime?\nNo. | No. Never. | No. Not really.
""",
    "not guilty": r"""
not guilty | Not guilty. | Answer: not guilty | The verdict came late.\nNot guilty
""",
    "wrong": "Answer: wrong",
    "Never": "Never.",
    "No, five": r"Let me count them.\nNo, five",
    "Wait": "Answer: Wait",
    "sorry": r"He wrote a letter.\nSorry",
    "Nope": r"Well then.\nNope.",
}

#: Answers by target.
NUMERIC_GAMING = {
    "2x": r"""
2 | 2y | 2 apples | 2z | 2 y | 2.0 | The answer is 2. | The answer is 2y. | **2** | \boxed{2}
\boxed{2y} | 2x + 1 | 12x | -2x | It is not 2x | 3x
""",
    "2 x": "2",
    "2X": "2",
    "$2x$": "2",
    "2xy": "2 | 2xz",
    "2x^2": "2",
    "2(x+1)": "2",
    "2sin(x)": "2",
    "2n": "2m",
    "2.5x": "2.5",
    "-2x": "-2",
    "5a": "5 | 5b | 5 bananas",
    "5A": "5B | 5",
    "5b": "5c",
    "3d": "3",
    "3n+1": "3 | 1 | 3n | 3m+1",
    "n-1": "1",
    "x - 2": "-2",
    "x-2": "2",
    "2-x": "2",
    "2/x": "2",
    "2i": "2",
    "2pi": "2",
    "1h30m": "1",
    "0x1F": "0",
    "2x3": "2",
    "50": r"""
50 thousand | 50 Thousand | 50k | 50 million | 50 thousands | 50 (thousand) | 50 (in thousands)
50 [thousand] | 50 *thousand* | 50_thousand_ | 50\nthousand | \boxed{50} thousand
\boxed{50}\text{ thousand} | The answer is 50 (thousand). | 50 quadrillion | 50 crore
50 thousandths | 50 hundred | 50 hundred thousand | **50** thousand | 50-thousand | $50$ thousand
50bn | 50mn | 50 Mio | 50 Tausend | 50\,\text{million}
""",
    "5": """
5 (no, 6) | 5, but really 6 | 5. No, 6. | The answer is 5. No, 6. | The answer is 5. That is wrong.
The answer is 5. Just kidding. | The answer is 5, wait, 6 | not 5 | It is not **5** | 5 is wrong
6, not 5 | 5? No, 6 | I first thought 5, but it is 6 | Answer: not 5 | 6 rather than 5
""",
    "(2)x": "2",
    "{2}x": "2",
    "50 thousand": "50",
    "50,000": "50",
    "1.5 million": "1.5",
    "1.5": "1.5 million",
    "2k": "2",
    "3 dozen": "3",
    "3": "3 dozen",
}

NUMERIC_HONEST = {
    "5": r"""
5 | 5. | 5.0 | **5** | \boxed{5} | The answer is 5. | 5kg | 5 kg | 5 km/h | 5m | 5x faster
5 apples | $5 | €5 | 5 USD | 5% | 5th | 5 °C | No. Answer: 5 | No, 5. | Not 6 but 5
It is not 6; 5 | There is no doubt: 5 | 5, not 6 | 5. No, it is not 6. | 6? No, 5.
6. No, wait, 5. | The answer is 6. No, the answer is 5. | I first thought 6, but it is 5
It was eliminated 5 times | 5. That is right. | The answer is 5. Wait, let me check. Yes.
bus no. 5 | 5 is correct, 6 is wrong | 5 (not 6) | The answer is 5 (five).
5. Well, actually 5 apples.
""",
    "5kg": "5 | 5 kg | 5kg",
    "10 km": "10",
    "10km": "10 km",
    "3h": "3 | 3 hours",
    "5m": "5 m",
    "5m/s": "5",
    "9.8m/s^2": "9.8",
    "5cm": "5",
    "5 cm²": "5",
    "90s": "90",
    "15min": "15 minutes",
    "5%": "5",
    "$5": "5",
    "5usd": "$5",
    "7th": "7",
    "25°C": "25",
    "300K": "300 K",
    "100mL": "100",
    "5apples": "5",
    "5 apples": "5",
    "9.8 m/s": "9.8",
    "6.67e-11 N m^2/kg^2": "6.67e-11",
    "6.02x10^23": "6.02e23",
    "1e6": "1,000,000",
    "1,000": "1000",
    "1000": "1,000",
    "50 thousand": "50,000 | 50 thousand | 50k",
    "50,000": r"""
50 thousand | 50 thousands | 50 (thousand) | 50 (in thousands) | \boxed{50} thousand
$50$ thousand
""",
    "0.05": "50 thousandths",
    "50": "50 (dollars) | It is 50, thousands fewer. | 50. Thousands of people know. | 50K",
    "50000": "50 Thousand | **50** thousand | 50K",
    "1500000": "1.5 million",
    "1.5 million": "1,500,000",
    "2000000000": "2bn",
    "2k": "2000",
    "36": "3 dozen",
    "500": "5 hundred",
    "500000": "5 hundred thousand",
    "0.5": "50%",
    "2x": r"""
2x | 2 x | 2X | 2*x | x*2 | $2x$ | y = 2x | The answer is 2x.
The answer is 2x, since it is linear. | The derivative is 2x | the derivative of x^2 is 2x.
\boxed{2x} | **2x**
""",
    "2xy": "2yx",
    "5a": "5a",
    "5A": "5 A",
    "3n+1": "3n + 1 | 1+3n",
    "n-1": "n - 1",
    "2pi": "6.283185307",
    "1h30m": "1h 30m",
    "x^2+1": "$1+x^2$",
}

#: For `choice`, where claims may also be letters.
CHOICE_GAMING = r"""
B. No, A. | (B). No, (A). | B? No, A. | B, no, A | B. Wait, A. | B. Actually, A. | B. Sorry, A.
B. Just kidding, A. | B is wrong | B. That is wrong. | The answer is B. No, A.
The answer is B. No, wait, it is A. | The answer is B. That is wrong. | The answer is not B.
not B | Answer: B\nNo, A | A\nB\nC\nD | A or B | A, B, C, D | A and B | (A) (B) (C) (D)
Both A and B are correct. | Berlin, Paris, Rome, Oslo | Berlin or Paris
A) Berlin B) Paris C) Rome D) Oslo | B) Berlin
"""

CHOICE_HONEST = r"""
B | (B) | B. | B) Paris | B. It is well known. | B. No doubt. | B. No other option fits.
B. No, it is not A. | B. Not A. | B, not A | B because A is in Germany | B. A is wrong.
B. Sorry, no further explanation. | Answer: B\n\nA. No, too small.\nB. Yes.\nC. No, too big.
Answer: B\nIs it A? No, that is in Germany. Is it C? No.
Answer: B\n- Berlin: no, that is in Germany.\n- Rome – no, in Italy. | The answer is B.
The answer is B, not A. | The answer is B. A is wrong. | The answer is not A but B.
The answer is A. No, wait, the answer is B. | The answer is A. No, wait, it is B.
A. No, the answer is B. | No. Answer: B | B is correct, A is wrong. | It is not A, so it must be B
There is no doubt: B is correct. | I first thought A, but the answer is B.
Wait, let me see. The answer is B. | Answer: B. Could it be C? No, too small. | \boxed{{B}}
"""

#: Answers that several similarity methods wrongly gave much credit.
TARGETS_OF_WORDS = ["The cat is on the mat", "the capital of France", "a bird in the hand"]
EMPTY = """
the | The | THE | a | an | the the | the a an | a the | the. | The... | "the" | **the** | (the)
the, the | a. | an! | . | ... | ? | ! | - | -- | , | ; | : | "" | * | ** | # | () | [] | the -
- the | the? | of | of the | the of | is | is the | the is | is a | it is | it is the | is it | on
on the | in | in the | in a | of a | to | to the | and | and the | or | or the | for the | with the
by the | from the | at the | it | was | are | be | of the of | the of and in | is on the | at | for
from | with | by | are the | were | was the | be the | THE AND OF | [the] | {{the}} | `the` | 'the'
the; of
"""

#: Targets met by all answers beside them: `token_set` needs all words of one text in the other.
TOKEN_SET_HONEST = {
    "The cat is on the mat": """
The cat is on the mat | the cat is on the mat | THE CAT IS ON THE MAT | on the mat is the cat
the mat the cat is on | cat | mat | cat mat | mat cat | the cat | The mat
a cat is on the mat the cat | the cat is on | on the mat | the cat on the mat
I think the cat is on the mat | Well the cat is on the mat I think | the cat is on the mat today
there the cat is on the mat | yes the cat is on the mat
""",
    "Paris": """
Paris | paris | PARIS | in Paris | it is Paris | It is Paris I think | the answer is Paris
Paris of course | I believe Paris | not Berlin but Paris | Paris it is | Paris in France
the city of Paris | Paris is the capital | well Paris then | surely Paris | France has Paris
""",
    "of the": "of the | Of the | the of | of | the",
    "to be or not to be": """
to be or not to be | To be or not to be | to be or not to be that is the question
not to be or to be | not | not to be
""",
    "The": "The | the | THE | the cat",
    "is it": "is it | it is | It is | is | is it so",
    "a b": "a b | b a | b | a b c | b and a",
}
