package remote

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Top shows what instances use.
type Top struct {
	Interval time.Duration `default:"2s" placeholder:"DURATION" help:"How often it is measured."`
	Once     bool          `help:"Print one table and end; so it does where standard output is no terminal."`
	Sort     string        `default:"cpu" enum:"cpu,memory,id" help:"What comes first: ${enum}."`
	Connection
}

// Help is shown below the usage.
func (*Top) Help() string {
	return `CPU is of one processor: 200% are two. On the live screen c, m and i sort by processor
time, memory and ID, and q or Ctrl-C leaves.

Examples:
  sandbox-broker top
  sandbox-broker top --once --sort memory`
}

// Run shows a live screen, or one table.
func (c *Top) Run(ctx context.Context, console *Console) error {
	if c.Interval < shortestInterval {
		return usageErrorf("--interval must be %s or more", shortestInterval)
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	m := &meter{broker: broker, before: map[string]client.InstanceMetrics{}}
	if c.Once || console.screen == nil || console.keyboard == nil {
		return c.once(ctx, console, m)
	}
	return c.live(ctx, console, m)
}

// once measures twice, for the share of a processor is what was used in between.
func (c *Top) once(ctx context.Context, console *Console, m *meter) error {
	ctx, leave := untilSignal(ctx)
	defer leave()
	rows, err := m.measure(ctx)
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		select {
		case <-ctx.Done():
			return ExitCode(exitCancelled)
		case <-time.After(c.Interval):
		}
		if rows, err = m.measure(ctx); err != nil {
			return err
		}
	}
	order(rows, c.Sort)
	return table.Print(console.Out, topColumns, rows, table.Options{Colors: console.colors})
}

// row is what one instance uses.
type row struct {
	client.Instance
	now client.InstanceMetrics
	// cpu is the share of a processor since the measurement before, 1 for all of one;
	// negative where there is none yet.
	cpu float64
	// unknown says why there are no figures.
	unknown string
}

var topColumns = []table.Column[row]{
	{Head: "ID", Cell: func(r row) string { return shortID(r.ID) }},
	{Head: "SESSION", Cell: func(r row) string { return shortened(r.SessionID, 24) }},
	{Head: "PROVIDER", Cell: func(r row) string { return r.Provider }},
	{Head: "STATE", Cell: func(r row) string { return r.State }, Color: func(r row) table.Color { return colorOf(r.State) }},
	{Head: "CPU", Cell: func(r row) string {
		if r.cpu < 0 {
			return ""
		}
		return fmt.Sprintf("%.0f%%", r.cpu*100)
	}},
	{Head: "CPU TIME", Cell: func(r row) string {
		if r.now.MeasuredAt == nil {
			return r.unknown
		}
		return fmt.Sprintf("%.1fs", r.now.CPUTime)
	}},
	{Head: "MEMORY", Cell: func(r row) string { return amount(r.now.MemoryMB, r.now.MemoryLimitMB) }},
	{Head: "DISK", Cell: func(r row) string {
		if r.now.DiskMB == nil {
			return ""
		}
		return amount(*r.now.DiskMB, r.now.DiskLimitMB)
	}},
	{Head: "PROCESSES", Cell: func(r row) string {
		if r.now.Processes == nil {
			return ""
		}
		return fmt.Sprint(*r.now.Processes)
	}},
}

// amount is what is used of a limit, in megabytes.
func amount(used, limit float64) string {
	switch {
	case used == 0 && limit == 0:
		return ""
	case limit == 0:
		return fmt.Sprintf("%.0f MB", used)
	default:
		return fmt.Sprintf("%.0f/%.0f MB", used, limit)
	}
}

// order sorts rows: those that use most first.
func order(rows []row, by string) {
	slices.SortStableFunc(rows, func(a, b row) int {
		difference := 0.0
		switch by {
		case "cpu":
			difference = b.cpu - a.cpu
		case "memory":
			difference = b.now.MemoryMB - a.now.MemoryMB
		}
		switch {
		case difference > 0:
			return 1
		case difference < 0:
			return -1
		default:
			return strings.Compare(a.ID, b.ID)
		}
	})
}

// measuredAtOnce is how many instances are asked for at the same time.
const measuredAtOnce = 8

// meter measures instances again and again.
type meter struct {
	broker *client.Client
	before map[string]client.InstanceMetrics
}

// measure asks what all instances use. One that cannot be measured has a row too.
func (m *meter) measure(ctx context.Context) ([]row, error) {
	instances, err := allInstances(ctx, m.broker, nil)
	if err != nil {
		return nil, err
	}
	rows := make([]row, len(instances))
	var group errgroup.Group
	group.SetLimit(measuredAtOnce)
	for n, i := range instances {
		group.Go(func() error {
			r := row{Instance: i, cpu: -1}
			now, err := m.broker.Metrics(ctx, i.ID)
			if err != nil {
				r.unknown = "?"
			}
			r.now = now
			rows[n] = r
			return nil
		})
	}
	_ = group.Wait() // what fails is in the rows
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	seen := make(map[string]client.InstanceMetrics, len(rows))
	for n := range rows {
		r := &rows[n]
		if r.now.MeasuredAt == nil {
			continue
		}
		seen[r.ID] = r.now
		if before, there := m.before[r.ID]; there {
			if passed := r.now.MeasuredAt.Sub(*before.MeasuredAt).Seconds(); passed > 0 {
				r.cpu = max(0, r.now.CPUTime-before.CPUTime) / passed
			}
		}
	}
	m.before = seen
	return rows, nil
}

// What a terminal does: show another screen with no cursor, and go back.
const (
	otherScreen = "\x1b[?1049h\x1b[?25l"
	ownScreen   = "\x1b[?25h\x1b[?1049l"
	fromTheTop  = "\x1b[H"
	restOfLine  = "\x1b[K\r\n"
	restBelow   = "\x1b[J"
)

// live shows a screen that is drawn anew until somebody leaves. The terminal is then as it was.
func (c *Top) live(ctx context.Context, console *Console, m *meter) (err error) {
	ctx, leave := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	defer leave()
	keys, err := openKeyboard(console.keyboard)
	if err != nil {
		return err
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	s := &screen{console: console, sort: c.Sort, leave: leave, redraw: make(chan struct{}, 1)}
	if _, err := fmt.Fprint(console.Out, otherScreen); err != nil {
		return err
	}
	var sides sync.WaitGroup
	sides.Go(func() { s.obey(keys) })
	defer func() {
		keys.stop()
		sides.Wait()
		_, _ = fmt.Fprint(console.Out, ownScreen)
		if restored := keys.close(); err == nil {
			err = restored
		}
	}()
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	for {
		rows, failed := m.measure(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.show(rows, failed)
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				return nil
			case <-resized:
				s.draw()
			case <-s.redraw:
				s.draw()
			case <-ticker.C:
				waits = false
			}
		}
	}
}

// screen is what a person looks at.
type screen struct {
	console *Console
	leave   context.CancelFunc
	redraw  chan struct{}

	mu   sync.Mutex
	sort string
	rows []row
	err  error
	at   time.Time
}

// obey does what keys ask for until the keyboard is stopped.
func (s *screen) obey(keys *keyboard) {
	const ctrlC, ctrlD = 3, 4
	key := make([]byte, 1)
	for {
		if _, err := keys.Read(key); err != nil {
			s.leave()
			return
		}
		switch key[0] {
		case 'q', ctrlC, ctrlD:
			s.leave()
		case 'c':
			s.sortBy("cpu")
		case 'm':
			s.sortBy("memory")
		case 'i':
			s.sortBy("id")
		}
	}
}

func (s *screen) sortBy(what string) {
	s.mu.Lock()
	s.sort = what
	s.mu.Unlock()
	select {
	case s.redraw <- struct{}{}:
	default:
	}
}

// show draws new figures. Those that could not be had leave the last ones there.
func (s *screen) show(rows []row, err error) {
	s.mu.Lock()
	if s.err = err; err == nil {
		s.rows, s.at = rows, time.Now()
	}
	s.mu.Unlock()
	s.draw()
}

// draw draws as much as there is room for.
func (s *screen) draw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	columns, lines, err := term.GetSize(int(s.console.screen.Fd()))
	if err != nil || columns < 1 || lines < 1 {
		columns, lines = 80, 24
	}
	order(s.rows, s.sort)
	var b strings.Builder
	what := "instances"
	if len(s.rows) == 1 {
		what = "instance"
	}
	fmt.Fprintf(&b, "%d %s at %s, by %s    c m i: sort    q: leave\n", len(s.rows), what, s.at.Format(time.TimeOnly), s.sort)
	if s.err != nil {
		fmt.Fprintf(&b, "%s\n", table.Printable(s.err.Error()))
	}
	b.WriteString("\n")
	room := max(0, lines-strings.Count(b.String(), "\n")-2)
	_ = table.Print(&b, topColumns, s.rows[:min(len(s.rows), room)], table.Options{})
	text := fromTheTop
	for line := range strings.Lines(b.String()) {
		text += shortened(strings.TrimRight(line, "\n"), columns) + restOfLine
	}
	_, _ = fmt.Fprint(s.console.Out, text+restBelow)
}
