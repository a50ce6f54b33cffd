package main

import (
	"bytes"
	"context"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// graph is latency by load, of several things at the same loads.
type graph struct {
	File  string `json:"file"`
	Title string `json:"title"`
	// Saturation is how many a second the first of them does at most.
	Saturation float64 `json:"saturation_per_second"`
	Curves     []curve `json:"curves"`
}

// curve is one of them.
type curve struct {
	Name   string  `json:"name"`
	Points []point `json:"points"`
}

// point is what was measured at one load.
type point struct {
	PerSecond float64 `json:"offered_per_second"`
	N         int     `json:"n"`
	All       figures `json:"all"`
}

// loads are parts of the saturation, from idle to twice as much as can be done.
var loads = []float64{0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.25, 1.5, 2}

const (
	// pointTakes is for how long a load is offered. Above the saturation the queue
	// grows all that time, and the latency with it.
	pointTakes = 6 * time.Second
	// fewestAtPoint is how many are measured, however long that takes.
	fewestAtPoint = 20
)

// bounded is what is done, at most so many at once; the others wait.
func (s subject) bounded() func() error {
	if s.most == 0 {
		return s.do
	}
	places := make(chan struct{}, s.most)
	return func() error {
		places <- struct{}{}
		defer func() { <-places }()
		return s.do()
	}
}

// atLoads measures subjects at each load, one after the other.
func (g *graph) atLoads(ctx context.Context, subjects []subject) error {
	g.Curves = make([]curve, len(subjects))
	for i, s := range subjects {
		g.Curves[i].Name = s.name
	}
	for _, part := range loads {
		perSecond := part * g.Saturation
		count := max(int(perSecond*pointTakes.Seconds()), fewestAtPoint)
		for i, s := range subjects {
			if err := quiet(ctx); err != nil {
				return err
			}
			m, err := steady(perSecond, s.bounded())(ctx, count)
			if err != nil {
				return fmt.Errorf("%s at %.1f a second: %w", s.name, perSecond, err)
			}
			g.Curves[i].Points = append(g.Curves[i].Points, point{perSecond, len(m.took), m.figures()})
		}
	}
	return nil
}

// colors of curves: a palette that people who do not see all colours can tell apart.
var colors = []color.Color{
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
	color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
}

// draw makes an SVG. The same graph gives the same bytes.
func (g graph) draw() ([]byte, error) {
	p := plot.New()
	for _, style := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		style.Typeface, style.Variant = "Liberation", "Sans"
	}
	p.Title.Text, p.Title.Padding = g.Title, 2*vg.Millimeter
	p.X.Label.Text, p.Y.Label.Text = "offered load, a second", "latency, ms"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.X.Min = 0
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Millimeter
	p.Legend.XOffs, p.Legend.YOffs = 2*vg.Millimeter, -2*vg.Millimeter
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe0}, color.Gray{Y: 0xe0}
	p.Add(grid)
	least, most := math.Inf(1), math.Inf(-1)
	for i, c := range g.Curves {
		for _, q := range []quantity{p50, p95} {
			var points plotter.XYs
			for _, at := range c.Points {
				v := at.All[q]
				points = append(points, plotter.XY{X: at.PerSecond, Y: v})
				least, most = min(least, v), max(most, v)
			}
			lines, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			lines.Color, lines.Width = colors[i%len(colors)], vg.Points(1.5)
			dots.Color, dots.Shape, dots.Radius = lines.Color, draw.CircleGlyph{}, vg.Points(2)
			if q == p95 {
				lines.Dashes, dots.Shape = []vg.Length{vg.Points(4), vg.Points(3)}, draw.RingGlyph{}
			}
			p.Add(lines, dots)
			p.Legend.Add(c.Name+", "+q.word(), lines, dots)
		}
	}
	// Whole powers of ten, with room for the legend above.
	p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(least))), math.Pow(10, math.Ceil(math.Log10(most))+1)
	mark, err := plotter.NewLine(plotter.XYs{{X: g.Saturation, Y: p.Y.Min}, {X: g.Saturation, Y: p.Y.Max}})
	if err != nil {
		return nil, err
	}
	mark.Color, mark.Dashes = color.Gray{Y: 0x80}, []vg.Length{vg.Points(1), vg.Points(2)}
	p.Add(mark)
	p.Legend.Add(fmt.Sprintf("saturation, %.3g a second", g.Saturation), mark)

	canvas := vgsvg.NewWith(vgsvg.UseWH(18*vg.Centimeter, 11*vg.Centimeter))
	const edge = 3 * vg.Millimeter
	p.Draw(draw.Crop(draw.New(canvas), edge, -edge, edge, -edge))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	// The fonts are not in the file.
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

// measureGraphs measures and draws latency by load into a directory.
func measureGraphs(ctx context.Context, l lab, dir string) ([]graph, error) {
	var graphs []graph
	for _, measure := range []func(context.Context, lab) (graph, error){graphFresh, graphTenant, graphSession} {
		g, err := measure(ctx, l)
		if err != nil {
			return graphs, fmt.Errorf("%s: %w", g.File, err)
		}
		if g.Curves == nil {
			continue
		}
		drawn, err := g.draw()
		if err != nil {
			return graphs, err
		}
		if err := os.WriteFile(filepath.Join(dir, g.File), drawn, 0o644); err != nil {
			return graphs, err
		}
		graphs = append(graphs, g)
	}
	return graphs, nil
}

func graphFresh(ctx context.Context, l lab) (g graph, err error) {
	g = graph{File: "performance-fresh.svg", Title: "Python hello, each in a fresh sandbox"}
	ds, err := l.newest().start(ctx, l.selfManaged(fmt.Sprintf("pool_size = %d\nqueue_timeout = \"5m\"", poolOfSix)))
	if err != nil {
		return g, err
	}
	defer func() { err = joinStop(err, ds) }()
	raw, err := newRawRunsc(ds[0], pythonHello, python, "-c")
	if err != nil {
		return g, err
	}
	defer func() { err = joinStop(err, raw) }()
	do := func() error { return ds[0].oneShot(pythonHello) }
	return g, g.measure(ctx, poolOfSix, func(int) error { return do() }, []subject{
		{"POST /execute", do, 0},
		{"runsc run", raw.run, crew()},
		bare(pythonHello, python, "-c"),
	})
}

func graphTenant(ctx context.Context, l lab) (g graph, err error) {
	g = graph{File: "performance-tenant.svg", Title: "Python hello, in a sandbox of the tenant"}
	l = l.newest()
	if able, err := l.builds[0].has(ctx, oneShotSetting); err != nil || !able {
		return g, err
	}
	ds, err := l.start(ctx, l.selfManaged(sharedByTenant))
	if err != nil {
		return g, err
	}
	defer func() { err = joinStop(err, ds) }()
	do := func() error { return ds[0].oneShot(pythonHello) }
	return g, g.measure(ctx, poolOfSix, func(int) error { return do() }, []subject{{"POST /execute", do, 0}, bare(pythonHello, python, "-c")})
}

func graphSession(ctx context.Context, l lab) (g graph, err error) {
	g = graph{File: "performance-session.svg", Title: "Python hello, in live sessions"}
	l = l.newest()
	ds, err := l.start(ctx, l.selfManaged(fmt.Sprintf("pool_size = %d", poolOfSix)))
	if err != nil {
		return g, err
	}
	defer func() { err = joinStop(err, ds) }()
	next := make(chan int, sessionsAtOnce)
	for i := range sessionsAtOnce {
		if err := ds[0].inSession(pythonHello, session(i)); err != nil {
			return g, err
		}
		next <- i
	}
	do := func() error { // in the session that was used longest ago
		i := <-next
		next <- i
		return ds[0].inSession(pythonHello, session(i))
	}
	return g, g.measure(ctx, 1, func(i int) error { return ds[0].inSession(pythonHello, session(i%sessionsAtOnce)) }, []subject{
		{fmt.Sprintf("POST /execute, %d sessions", sessionsAtOnce), do, 0}, bare(pythonHello, python, "-c"),
	})
}

// measure finds the saturation, with many clients that ask one after the other, and
// then the latency at each load.
func (g *graph) measure(ctx context.Context, first int, do func(client int) error, subjects []subject) error {
	if err := quiet(ctx); err != nil {
		return err
	}
	// As many as take some seconds, by the rate of a few.
	clients := 2 * crew()
	few, err := sustained(clients, first+clients, do)(ctx, 2*clients)
	if err != nil {
		return err
	}
	many, err := sustained(clients, clients, do)(ctx, max(int(few.figures()[rate]*pointTakes.Seconds()), 2*clients))
	if err != nil {
		return err
	}
	g.Saturation = many.figures()[rate]
	return g.atLoads(ctx, subjects)
}
