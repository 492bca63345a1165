"""How the page looks: light and dark, screen, phone and paper."""

CSS = """\
:root {
  color-scheme: light dark;
  --bg: #ffffff; --panel: #f5f7f9; --ink: #1a1f26; --muted: #55606c; --line: #d5dbe1;
  --accent: #0b62a8; --shade: 11, 98, 168; --warm: 194, 78, 0; --notice: #fff6df; --notice-line: #a86b00;
  --c0: #0072b2; --c1: #b06a00; --c2: #007d5c; --c3: #c23f00;
  --c4: #6b46b0; --c5: #b8407c; --c6: #766700; --c7: #555b61; --edge: rgba(20, 30, 45, .28);
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --bg: #14181d; --panel: #1c2229; --ink: #e8ecf0; --muted: #a5b0bb; --line: #38424d;
    --accent: #6cb8f2; --shade: 90, 170, 235; --warm: 240, 140, 60; --notice: #2d2513; --notice-line: #d9a441;
    --c0: #5cb5ee; --c1: #f0ad3f; --c2: #3fc99c; --c3: #ff8c54;
    --c4: #b7a0f2; --c5: #f291c0; --c6: #d6c64c; --c7: #b8bec4; --edge: rgba(190, 215, 240, .32);
  }
}
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--bg); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", Arial, sans-serif;
  overflow-wrap: anywhere;
}
.wrap { max-width: 66rem; margin: 0 auto; padding: 0 1.25rem; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--bg); padding: .5rem .75rem; border: 2px solid var(--accent); }
a { color: var(--accent); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
header { background: var(--panel); border-bottom: 1px solid var(--line); padding: 2rem 0 1.5rem; }
.brand { margin: 0 0 .5rem; color: var(--muted); font-size: .9rem; }
h1 { font-size: clamp(1.6rem, 4.5vw, 2.5rem); line-height: 1.15; margin: 0 0 1.25rem; letter-spacing: -.015em; }
h2 { font-size: 1.3rem; line-height: 1.25; margin: 0 0 .75rem; }
h3 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
p, ul { max-width: 46rem; margin: 0 0 1rem; }
section { padding: 1.75rem 0 .75rem; border-top: 1px solid var(--line); }
main > section:first-child { border-top: 0; }
nav ul {
  list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem;
  margin: 1.25rem 0 0; padding: 0; max-width: none; font-size: .92rem;
}
.muted { color: var(--muted); }
.summary { font-size: 1.08rem; max-width: 52rem; margin: 0 0 1.25rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 0; }
.figures div { background: var(--bg); border: 1px solid var(--line); border-radius: .5rem; padding: .7rem .85rem; }
.figures dt { color: var(--muted); font-size: .85rem; line-height: 1.3; }
.figures dd { margin: .15rem 0 0; font-size: 1.45rem; font-weight: 650; line-height: 1.2; }
.figures small { display: block; font-size: .82rem; font-weight: 400; color: var(--muted); margin-top: .15rem; }
.notice {
  background: var(--notice); border-left: .3rem solid var(--notice-line); padding: .7rem .9rem; border-radius: .25rem;
}
.box {
  overflow-x: auto; margin: 0 0 1.25rem; max-width: 100%;
  /* A shadow at each edge behind which there is more: covers of the ground scroll with the table, shadows stay. */
  background:
    linear-gradient(to right, var(--bg) 40%, transparent) left / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--bg) 40%, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to right, var(--edge), transparent) left / 1.1rem 100% no-repeat scroll,
    linear-gradient(to left, var(--edge), transparent) right / 1.1rem 100% no-repeat scroll;
}
table {
  border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .94rem; line-height: 1.35;
  overflow-wrap: break-word;
}
caption { text-align: left; color: var(--muted); font-size: .9rem; padding: 0 0 .45rem; caption-side: top; }
caption span { display: block; position: sticky; left: 0; width: max-content; max-width: min(46rem, 100vw - 2.5rem); }
th, td { padding: .38rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: middle; }
thead th { border-bottom: 2px solid var(--line); font-size: .86rem; color: var(--muted); vertical-align: bottom; }
tbody th { font-weight: 600; }
tfoot th, tfoot td { border-top: 2px solid var(--line); border-bottom: 0; font-weight: 600; }
.n { text-align: right; }
td.n, th.short { white-space: nowrap; }
th[scope="row"] { position: sticky; left: 0; background: var(--bg); max-width: 18rem; }
td.shade { background: rgba(var(--shade), var(--a)); }
td.shade small { color: inherit; }
td small { color: var(--muted); font-size: .82em; }
td.heat { background: rgba(var(--shade), var(--a)); text-align: right; white-space: nowrap; min-width: 6.5rem; }
td.above { background: rgba(var(--warm), var(--a)); }
td.heat b { font-weight: 500; }
td.top b { font-weight: 750; }
td.heat small { display: block; color: inherit; }
.strip { display: block; position: relative; height: .4rem; margin-top: .2rem; border-bottom: 1px solid var(--muted); }
.strip span { position: absolute; bottom: 0; height: .22rem; min-width: 1px; background: var(--muted); }
.strip .tick { height: .4rem; width: 2px; margin-left: -1px; background: var(--ink); }
table.wide { width: 100%; }
.barcell { width: 60%; }
.bar {
  display: block; height: .85rem; min-width: 4.5rem; background: var(--panel); outline: 1px solid var(--line);
  border-radius: 2px;
}
.bar, .bar span, .strip span, td.shade, td.heat { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.bar span { display: block; height: 100%; background: var(--accent); border-radius: 2px; }
.bar .below { background: repeating-linear-gradient(135deg, var(--accent) 0 3px, transparent 3px 6px); }
.chip {
  display: inline-block; min-width: 1.9em; padding: .04em .4em; text-align: center;
  border: 2px solid currentColor; border-radius: .35em;
}
.chip b { color: var(--ink); font-weight: 700; }
details { margin: 0 0 1.25rem; }
summary { cursor: pointer; color: var(--accent); margin-bottom: .6rem; }
.pairs {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); gap: .6rem 1.5rem;
  margin: 0 0 1.25rem;
}
.pairs dt { color: var(--muted); font-size: .88rem; }
.pairs dd { margin: 0; }
.terms dt { font-weight: 650; }
.terms dd { margin: 0 0 .8rem; max-width: 46rem; }
footer { border-top: 1px solid var(--line); color: var(--muted); font-size: .88rem; padding: 1rem 0 2rem; }
@media (max-width: 34rem) {
  .wrap { padding: 0 1rem; }
  .figures { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .figures dd { font-size: 1.2rem; }
  th, td { padding: .35rem .4rem; }
  thead th { font-size: .8rem; }
  .bar { min-width: 3.5rem; }
  .pairs { grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); }
  th[scope="row"] { max-width: 9.5rem; }
  table.wide { width: auto; min-width: 100%; }
  .barcell { width: 40%; }
}
@media print {
  :root { color-scheme: light; }
  body { font-size: 10pt; }
  nav, .skip, details { display: none; }
  header { background: none; padding-top: 0; }
  tr, .figures div, .notice, dl div { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; }
  .box { overflow: visible; background: none; }
  table { font-size: .85em; }
  th, td { padding: .2rem .4rem; }
  th[scope="row"] { position: static; }
  td.heat { min-width: 0; }
}
"""
