"""The page's style sheet: readable on a phone, on paper, by day and by night."""

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #57606a; --rule: #d5dae0;
  --tint: #f3f5f8; --one: #1f5fbf; --two: #b8540c; --three: #7a3fa0; --band: #1f5fbf22;
  --good: #1a6e34; --acceptable: #3f6212; --marginal: #8a5300; --poor: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e4e7eb; --soft: #a3acb7;
  --rule: #363d46; --tint: #1d2228; --one: #7db3ff; --two: #ffac6b; --three: #cf9df2;
  --band: #7db3ff2b; --good: #6fd08c; --acceptable: #b5d46a; --marginal: #f0b45a;
  --poor: #ff8f86; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-top: .8rem;
  border-top: 1px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
p, li, dd { max-width: 46rem; overflow-wrap: anywhere; }
p { margin: .5rem 0; }
.kicker { color: var(--soft); margin: 0; font-size: .9rem; }
.short { background: var(--tint); border-radius: .5rem; padding: .8rem 1.2rem .8rem 2.2rem;
  margin: 0; max-width: none; }
.short li { margin: .3rem 0; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
  gap: 1rem 1.5rem; margin: 1rem 0; }
details > summary { cursor: pointer; color: var(--one); }
figure { margin: 0; min-width: 0; break-inside: avoid; }
figcaption, .note { color: var(--soft); font-size: .9rem; overflow-wrap: anywhere; }
figcaption b { color: var(--ink); }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 14px; }
svg .mid { text-anchor: middle; } svg .end { text-anchor: end; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1.5; }
svg .line { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
svg .band { fill: var(--band); }
.line.one { stroke: var(--one); } .bar.one { fill: var(--one); }
.key.one { background: var(--one); }
.line.two { stroke: var(--two); stroke-dasharray: 7 4; } .bar.two { fill: var(--two); }
.key.two { background: var(--two); }
.line.three { stroke: var(--three); stroke-dasharray: 2 4; }
.key.three { background: var(--three); }
svg .label { fill: var(--ink); } svg .strong { font-weight: 600; }
svg .whisker { stroke: var(--one); stroke-width: 4; }
svg .whisker.never { stroke-dasharray: 3 5; }
svg .dot { fill: var(--one); stroke: var(--paper); stroke-width: 2; }
svg .dot.never { fill: var(--paper); stroke: var(--one); stroke-width: 2.5; }
svg .dot.among { fill: var(--soft); fill-opacity: .4; stroke: none; }
svg .typical { stroke: var(--two); stroke-width: 3; }
.key.dot { width: .8rem; height: .8rem; border-radius: 50%; background: var(--one); }
.key.dot.never { background: var(--paper); border: 2.5px solid var(--one); }
.key.dot.among { background: var(--soft); opacity: .5; }
.key.typical { width: .25rem; height: .9rem; background: var(--two); }
.key.shade { background: var(--band); height: .8rem; }
.one-wide { max-width: 40rem; }
.cautions { border: 1px solid var(--marginal); border-left-width: .4rem; border-radius: .5rem;
  padding: .2rem 1.2rem .6rem 2.2rem; }
.cautions li { margin: .5rem 0; }
.big { font-size: 2.2rem; font-weight: 650; line-height: 1.2; margin: 0 0 .6rem; }
.big small { font-size: 1rem; font-weight: 400; color: var(--soft); }
td.text { min-width: 14rem; max-width: 24rem; overflow-wrap: anywhere; }
.legend { font-size: .9rem; color: var(--soft); margin: .2rem 0; }
.key { display: inline-block; width: 1.1rem; height: .35rem; border-radius: 2px;
  margin: 0 .4rem .15rem 0; }
.legend span { display: inline-block; margin-right: 1.2rem; }
.wide { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
caption { text-align: left; color: var(--soft); font-size: .85rem; padding-bottom: .3rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0;
  border-bottom: 1px solid var(--rule); font-variant-numeric: tabular-nums; }
thead th { color: var(--soft); font-weight: 600; border-bottom-width: 2px; vertical-align: bottom; }
tbody th { font-weight: 600; }
th.name { overflow-wrap: anywhere; min-width: 8rem; max-width: 20rem; white-space: pre-wrap; }
td { min-width: 4rem; }
td div + div { margin-top: .2rem; }
code { font-size: .85em; overflow-wrap: anywhere; }
.word { font-weight: 600; }
.word.good { color: var(--good); } .word.acceptable { color: var(--acceptable); }
.word.marginal { color: var(--marginal); } .word.poor { color: var(--poor); }
dt { font-weight: 600; margin-top: .6rem; } dd { margin: 0; color: var(--soft); }
@media (max-width: 30rem) { .one-wide svg text { font-size: 19px; } svg .aside { display: none; }
  .big { font-size: 1.8rem; } }
@media print { :root { color-scheme: light; --paper: #fff; --ink: #000; --soft: #444; --rule: #bbb;
  --tint: #f3f5f8; --one: #1f5fbf; --two: #b8540c; --three: #7a3fa0; --band: #1f5fbf22;
  --good: #1a6e34; --acceptable: #3f6212; --marginal: #8a5300; --poor: #b3261e; }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  .pair { grid-template-columns: 1fr 1fr; }
  details::details-content { content-visibility: visible; height: auto; }
  .wide { overflow: visible; } h2, h3 { break-after: avoid; } tr { break-inside: avoid; } }
"""
