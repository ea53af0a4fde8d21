"""`sextant lint`: check the parameters of a bank file."""

from collections import Counter
from dataclasses import asdict

from rich.table import Table

from app.cli.lab.inputs import BankOption, JsonOption, load_bank
from app.cli.terminal import console
from app.cli.terminal.console import fail_clearly, write_json
from app.engine.lint import CODES, lint, quarantine

_SHOWN = 50


@fail_clearly
def command(bank: BankOption, json: JsonOption = None) -> None:
    """Check the parameters of a bank file."""
    items = load_bank(bank, several=True)
    findings = lint(items)
    quarantined = quarantine(findings)
    counts = Counter(finding.code for finding in findings)
    screen = console.err if json == "-" else console.out
    if findings:
        table = Table("item", "severity", "code", "field", "value")
        for finding in findings[:_SHOWN]:
            table.add_row(
                finding.item_id,
                finding.severity,
                finding.code,
                finding.field,
                f"{finding.value:.4g}",
            )
        screen.print(table)
        if len(findings) > _SHOWN:
            screen.print(f"... and {len(findings) - _SHOWN} more; --json PATH writes all.")
        for code, count in counts.most_common():
            screen.print(f"{count:6d} {code}: {CODES[code]}")
    screen.print(
        f"{items.n_items} items, {len(findings)} findings,"
        f" {len(quarantined)} items kept out of adaptive tests."
    )
    write_json(
        json,
        {
            "n_items": items.n_items,
            "counts": dict(counts),
            "quarantined": [item for item in items.item_ids if item in quarantined],
            "findings": [asdict(finding) for finding in findings],
        },
    )
