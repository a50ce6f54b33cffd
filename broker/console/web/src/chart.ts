// Draws series over time. It is fetched when the first chart is.
import uPlot from "uplot";

export interface Line { label: string; points: (number | null)[] }

/** draw makes a chart that fits its element until the returned function ends it. */
export function draw(into: HTMLElement, height: number): { show: (times: number[], lines: Line[]) => void; end: () => void } {
  let plot: uPlot | undefined, key = "";
  const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  let last: [number[], Line[]] | undefined;
  const make = (lines: Line[]) => {
    plot?.destroy();
    const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "12px system-ui" };
    plot = new uPlot({
      width: Math.max(200, into.clientWidth), height,
      cursor: { y: false }, legend: { live: true },
      scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [{ ...axis, space: 70, values: "{HH}:{mm}" }, { ...axis, size: 52 }],
      series: [{ value: "{HH}:{mm}:{ss}" }, ...lines.map((l, i) => ({
        label: l.label, stroke: color(`--series-${(i % 6) + 1}`), width: 1.75, spanGaps: false,
        dash: i >= 6 ? [4, 4] : undefined,
        value: (_: uPlot, v: number | null) => v == null ? "–" : v.toLocaleString("en", { maximumSignificantDigits: 3 }),
      }))],
    }, [[], ...lines.map(() => [])] as unknown as uPlot.AlignedData, into);
  };
  const show = (times: number[], lines: Line[]) => {
    last = [times, lines];
    const now = lines.map((l) => l.label).join("\n");
    if (!plot || now !== key) { key = now; make(lines); }
    plot!.setData([times, ...lines.map((l) => l.points)] as uPlot.AlignedData);
  };
  const sized = new ResizeObserver(() => plot?.setSize({ width: Math.max(200, into.clientWidth), height }));
  sized.observe(into);
  const recolored = () => { if (last) { key = ""; show(...last); } };
  scheme.addEventListener("change", recolored);
  return { show, end: () => { sized.disconnect(); scheme.removeEventListener("change", recolored); plot?.destroy(); } };
}
