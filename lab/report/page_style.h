#pragma once

namespace keel::lab::report {

/// Colours, light or dark by the reader's system preference. The eight curve colours are distinguishable for
/// colour-blind readers, and each has a contrast of at least 3:1 to its background.
inline constexpr const char* kPalette = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #5b6675; --rule: #dfe3e8; --grid: #e8ebef;
  --bad: #b3261e; --bad-soft: #fdecea; --accent: #1f5fa8;
  --c0: #0072b2; --c1: #d55e00; --c2: #00845f; --c3: #aa4499; --c4: #946b00; --c5: #2f9bd6;
  --c6: #6b7280; --c7: #7a1f3d; --positive: #b2182b; --negative: #2166ac; --none: #f3f4f6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10151c; --card: #19202a; --ink: #e6eaf0; --soft: #9aa6b5; --rule: #2c3644; --grid: #263040;
    --bad: #ff8a80; --bad-soft: #3a1f20; --accent: #7db8f5;
    --c0: #58b0ee; --c1: #ff9254; --c2: #3ccb9f; --c3: #e39bd6; --c4: #e8bd4a; --c5: #9fd8ff;
    --c6: #a8b3c2; --c7: #e07a9a; --positive: #ff6b5e; --negative: #5aa9ff; --none: #1f2833;
  }
}
)css";

/// Styles of svg.h's charts other than colours.
inline constexpr const char* kChartStyle = R"css(
svg text { font-size: 11px; fill: var(--soft); font-family: inherit; font-variant-numeric: tabular-nums; }
svg text.name { fill: var(--ink); }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
svg .band { opacity: 0.16; }
svg .cross { fill: none; stroke-width: 2.4; stroke-linecap: round; }
svg .none { fill: var(--none); }
)css";

/// The rest of the page's style. One column on a phone.
inline constexpr const char* kPageStyle = R"css(
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1200px; margin: 0 auto; padding: 28px 20px 60px; }
h1, h3, p, figcaption, .legend, td.label { overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 1.15rem; margin: 36px 0 12px; }
h3 { font-size: 0.95rem; margin: 0; }
p { margin: 0 0 8px; max-width: 75ch; }
.soft, figcaption p { color: var(--soft); font-size: 0.85rem; margin: 0; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 16px; }
.grid > *, .matrices > *, .failures > * { min-width: 0; }
.grid { display: grid; gap: 16px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr)); }
.matrices { display: grid; gap: 16px; align-items: end; grid-template-columns: repeat(auto-fill, minmax(120px, 1fr)); }
@media (min-width: 780px) { .spectra .wide { grid-column: span 2; } }
figure { margin: 0; }
figcaption { margin-bottom: 8px; }
figure svg { display: block; width: 100%; height: auto; overflow: visible; }
svg.swatch { width: 26px; height: 10px; flex: none; display: inline-block; }
svg.swatch line { stroke-width: 3; }
svg.matrix { border: 1px solid var(--rule); border-radius: 4px; }
svg.key { margin-top: 6px; }
svg.key text { font-size: 12px; }
.legend {
  position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 0 -20px 12px;
  padding: 8px 20px; background: var(--page); border-bottom: 1px solid var(--rule); font-size: 0.85rem;
}
.legend span, td.label span, figcaption span, h3 span { display: inline-flex; align-items: center; gap: 8px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.92rem; }
th { text-align: left; color: var(--soft); font-weight: 600; font-size: 0.8rem; }
th, td { padding: 8px 14px 8px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.label { font-weight: 600; min-width: 14ch; }
.bad { color: var(--bad); font-weight: 600; }
.failure { border-left: 4px solid var(--bad); background: var(--bad-soft); }
.failures { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); }
details { margin-top: 12px; }
summary { cursor: pointer; color: var(--accent); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); gap: 6px 20px; margin: 12px 0 0; }
dl div { min-width: 0; }
dt { color: var(--soft); font-size: 0.8rem; }
dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
code { font: 0.85em/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
footer { margin-top: 40px; color: var(--soft); font-size: 0.85rem; }
@media (max-width: 640px) {
  main { padding: 18px 14px 40px; }
  .legend { margin: 0 -14px 12px; padding: 6px 14px; gap: 0 14px; font-size: 0.8rem; }
  .cards, .cards tbody, .cards tr, .cards td { display: block; }
  .cards thead { display: none; }
  .cards tr { border-bottom: 1px solid var(--rule); padding: 10px 0; }
  .cards tr:last-child { border-bottom: 0; }
  .cards td { border: 0; padding: 1px 0; }
  .cards td.n, .cards td.words { display: flex; justify-content: space-between; gap: 16px; text-align: right; }
  .cards td[data-name]::before { content: attr(data-name); color: var(--soft); font-weight: 400; }
  .cards td.label { padding-bottom: 4px; }
}
@media print { .legend { position: static; } .card { break-inside: avoid; } }
)css";

}  // namespace keel::lab::report
