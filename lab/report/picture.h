#pragma once

// Charts composed to pictures: SVG that stands alone beside a Markdown page, or in an HTML page.

#include <string>
#include <utility>
#include <vector>

#include "lab/report/svg.h"

namespace keel::lab::report {

/// Colours, light or dark by the reader's system preference. The eight curve colours are distinguishable for
/// colour-blind readers, and each has a contrast of at least 3:1 to its background.
inline constexpr const char* kPalette = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #5b6675; --rule: #dfe3e8; --grid: #e8ebef;
  --bad: #b3261e; --bad-soft: #fdecea; --accent: #1f5fa8;
  --c0: #0072b2; --c1: #d55e00; --c2: #00845f; --c3: #aa4499; --c4: #946b00; --c5: #1b2430;
  --c6: #6b7280; --c7: #7a1f3d; --positive: #b2182b; --negative: #2166ac; --none: #f3f4f6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10151c; --card: #19202a; --ink: #e6eaf0; --soft: #9aa6b5; --rule: #2c3644; --grid: #263040;
    --bad: #ff8a80; --bad-soft: #3a1f20; --accent: #7db8f5;
    --c0: #58b0ee; --c1: #ff9254; --c2: #3ccb9f; --c3: #e39bd6; --c4: #e8bd4a; --c5: #ffffff;
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
svg .place { fill: transparent; }
svg .cross { fill: none; stroke-width: 2.4; stroke-linecap: round; }
svg .none { fill: var(--none); }
)css";

struct Panel {
  std::string title;
  std::string svg;  ///< 340 units wide
};

struct Key {
  std::string label;
  int colour = 0;
};

/// The panels in two columns, with a key below. Colours follow the reader's light or dark theme.
std::string picture(const std::vector<Panel>& panels, const std::vector<Key>& keys = {});

/// One panel per chart, with a key of all curves. Curves with the same label get the same colour, by their place among
/// `labels` and then among those that are not there.
std::string picture(std::vector<std::pair<std::string, Chart>> charts,
                    const std::vector<std::string>& labels = {});

/// f over [0, 1] x [0, 1] as a grid of lines in perspective; `left` and `right` label the axes.
std::string surface_svg(const std::vector<std::vector<double>>& heights, const std::string& left,
                        const std::string& right, const std::string& description);

}  // namespace keel::lab::report
