package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	pathSnapshots      = "/api/v1/snapshots"
	pathAdminSnapshots = "/api/admin/sandbox/snapshots"
)

// Snapshot has the commands about instances as they were at a moment.
type Snapshot struct {
	Create SnapshotCreate `cmd:"" help:"Keep an instance as it is, and print the ID of the snapshot."`
	Ls     SnapshotLs     `cmd:"" default:"withargs" help:"List snapshots."`
	Rm     SnapshotRm     `cmd:"" help:"Delete snapshots."`
}

// Help is shown below the usage.
func (*Snapshot) Help() string {
	return `A snapshot has the files of an instance and, where its provider can, its interpreters
with their variables and what runs in the background. The instance runs on.

Examples:
  id=$(sandbox-broker snapshot create build --name before-the-upgrade)
  sandbox-broker create --snapshot "$id" --session second-try
  sandbox-broker snapshot ls
  sandbox-broker snapshot rm "$id"`
}

// listedSnapshot is a snapshot of a list; Tenant is there in those of administrators alone.
type listedSnapshot struct {
	Tenant string `json:"tenant"`
	client.Snapshot
}

func snapshotList(now time.Time, tenants bool) listing[listedSnapshot] {
	var columns []table.Column[listedSnapshot]
	if tenants {
		columns = append(columns, table.Column[listedSnapshot]{Head: "TENANT", Cell: func(s listedSnapshot) string { return s.Tenant }})
	}
	columns = append(columns,
		table.Column[listedSnapshot]{Head: "ID", Cell: func(s listedSnapshot) string { return s.ID }},
		table.Column[listedSnapshot]{Head: "NAME", Cell: func(s listedSnapshot) string { return s.Name }},
		table.Column[listedSnapshot]{Head: "OF", Cell: func(s listedSnapshot) string { return sessionIn(s.InstanceID) }},
		table.Column[listedSnapshot]{Head: "PROVIDER", Cell: func(s listedSnapshot) string { return s.Provider }},
		table.Column[listedSnapshot]{Head: "HAS", Cell: hasOf},
		table.Column[listedSnapshot]{Head: "SIZE", Cell: func(s listedSnapshot) string { return size(s.Bytes) }},
		table.Column[listedSnapshot]{Head: "AGE", Cell: func(s listedSnapshot) string { return table.Duration(now.Sub(s.CreatedAt)) }},
		table.Column[listedSnapshot]{Head: "EXPIRES", Cell: func(s listedSnapshot) string {
			return "in " + table.Duration(max(0, s.ExpiresAt.Sub(now)))
		}},
		table.Column[listedSnapshot]{Head: "TEMPLATE", Wide: true, Cell: func(s listedSnapshot) string { return s.Template }},
		table.Column[listedSnapshot]{Head: "LABELS", Wide: true, Cell: func(s listedSnapshot) string { return labels(s.Labels) }},
		table.Column[listedSnapshot]{Head: "INSTANCE", Wide: true, Cell: func(s listedSnapshot) string { return s.InstanceID }},
	)
	return listing[listedSnapshot]{columns: columns, name: func(s listedSnapshot) string { return s.ID }}
}

func hasOf(s listedSnapshot) string {
	if s.Memory {
		return "memory"
	}
	return "files"
}

// sessionIn is the session in an instance's ID.
func sessionIn(id string) string {
	if parts := strings.Split(id, ":"); len(parts) == 3 {
		return parts[1]
	}
	return id
}

// SnapshotCreate keeps an instance as it is.
type SnapshotCreate struct {
	Instance string        `arg:"" help:"The instance: its ID, the beginning of the last part of that, or its session." complete:"instances"`
	Name     string        `placeholder:"NAME" help:"A name for people."`
	Label    []string      `sep:"none" placeholder:"NAME=VALUE" help:"A note to find it by. Again for more."`
	TTL      time.Duration `name:"ttl" placeholder:"DURATION" help:"How long it is kept, such as 48h."`
	Output
	Connection
}

// Run makes a snapshot, and says so meanwhile.
func (c *SnapshotCreate) Run(ctx context.Context, console *Console) error {
	if c.TTL < 0 {
		return usageErrorf("--ttl must be more than 0")
	}
	req := client.CreateSnapshotRequest{Name: c.Name, TTL: c.TTL.Seconds()}
	var err error
	if req.Labels, err = labelsIn(c.Label); err != nil {
		return err
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	ctx, leave := untilSignal(ctx)
	defer leave()
	id, err := instanceNamed(ctx, broker, c.Instance)
	if err != nil {
		return err
	}
	stop := startProgress(console, func() string { return "keeping " + c.Instance })
	answer, made, err := answered[listedSnapshot](ctx, broker, client.Request{
		Method: http.MethodPost, Path: pathInstances + "/" + url.PathEscape(id) + "/snapshots", Body: req,
	})
	stop()
	if err != nil {
		return err
	}
	return snapshotList(time.Now(), false).print(console, c.name(), []listedSnapshot{made}, answer)
}

// labelsIn reads the flags --label.
func labelsIn(pairs []string) (map[string]string, error) {
	var labels map[string]string
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usageErrorf("--label %s: write NAME=VALUE", pair)
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[name] = value
	}
	return labels, nil
}

// SnapshotLs lists snapshots.
type SnapshotLs struct {
	AllTenants bool     `name:"all-tenants" short:"a" help:"Those of all tenants; takes an administrator's token."`
	Tenant     string   `placeholder:"NAME" help:"Those of this tenant; with --all-tenants." complete:"tenants"`
	Label      []string `short:"l" sep:"none" placeholder:"NAME=VALUE" help:"Those that have this label. Again for more, all of which they must have."`
	Instance   string   `short:"i" placeholder:"INSTANCE" help:"Those of this instance, which may be no more; then its full ID." complete:"instances"`
	Provider   string   `short:"p" placeholder:"ID" help:"Those at this provider." complete:"providers"`
	Quiet      bool     `short:"q" help:"The same as --output name."`
	Output
	Connection
}

// Run lists.
func (c *SnapshotLs) Run(ctx context.Context, console *Console) error {
	switch {
	case c.Tenant != "" && !c.AllTenants:
		return usageErrorf("--tenant goes with --all-tenants, and an administrator's token")
	case c.AllTenants && (len(c.Label) > 0 || c.Instance != ""):
		return usageErrorf("--label and --instance do not go with --all-tenants")
	case c.Quiet:
		c.Output.Output = "name"
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	query := url.Values{}
	if c.Instance != "" {
		id, err := instanceNamed(ctx, broker, c.Instance)
		if err != nil {
			return err
		}
		query.Set("instance_id", id)
	}
	for name, value := range map[string]string{"provider": c.Provider, "tenant": c.Tenant} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if len(c.Label) > 0 {
		query["label"] = c.Label
	}
	path, field := pathSnapshots, "snapshots"
	if c.AllTenants {
		path, field = pathAdminSnapshots, "data"
	}
	answer, items, err := pages[listedSnapshot](ctx, broker, path, field, query)
	if err != nil {
		return err
	}
	return snapshotList(time.Now(), c.AllTenants).print(console, c.Output.Output, items, answer)
}

// SnapshotRm deletes snapshots.
type SnapshotRm struct {
	Snapshot   []string `arg:"" help:"IDs of snapshots."`
	AllTenants bool     `name:"all-tenants" short:"a" help:"They may be anybody's: takes an administrator's token."`
	Force      bool     `short:"f" help:"One that is not there is no failure."`
	Connection
}

// Run deletes one after the other, and goes on behind one that cannot be.
func (c *SnapshotRm) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	ctx, leave := untilSignal(ctx)
	defer leave()
	remove := client.SnapshotsOf(broker).Delete
	if c.AllTenants {
		remove = broker.Admin().DeleteSnapshot
	}
	code := 0
	for _, id := range c.Snapshot {
		err := remove(ctx, id)
		if err == nil {
			_, err = fmt.Fprintln(console.Out, id)
		} else if c.Force && isGone(err) {
			err = nil
		}
		if err != nil {
			Tell(console.Err, fmt.Errorf("%s: %w", id, err))
			code = max(code, ExitCodeOf(err))
		}
		if ctx.Err() != nil {
			return ExitCode(exitCancelled)
		}
	}
	if code != 0 {
		return ExitCode(code)
	}
	return nil
}

// Fork makes copies of an instance.
type Fork struct {
	Instance string        `arg:"" help:"The instance: its ID, the beginning of the last part of that, or its session." complete:"instances"`
	Count    int           `short:"n" default:"1" placeholder:"COUNT" help:"How many copies."`
	Session  []string      `short:"s" placeholder:"NAME" help:"The session of a copy. Again for each; a new one for each unless given."`
	Env      []string      `short:"e" sep:"none" placeholder:"NAME=VALUE" help:"A variable for what starts in the copies; NAME alone takes the value from here. Again for more."`
	Label    []string      `sep:"none" placeholder:"NAME=VALUE" help:"A note to find the copies by. Again for more."`
	TTL      time.Duration `name:"ttl" placeholder:"DURATION" help:"How long they live, such as 1h; use makes it longer."`
	Idle     time.Duration `placeholder:"DURATION" help:"How long they live without use."`
	Wait     time.Duration `placeholder:"DURATION" help:"How long each may wait for its turn when a quota has no room, such as 30s."`
	Output
	Connection
}

// Help is shown below the usage.
func (*Fork) Help() string {
	return `The copies go on where the instance stands: files, interpreters with their variables and
what runs in the background, as its provider can keep it. Each has a session of its own.
The instance runs on. All copies are made, or none. Prints their IDs.

Examples:
  sandbox-broker fork build -n 8
  sandbox-broker fork build --session left --session right`
}

// Run makes copies, and says so meanwhile.
func (c *Fork) Run(ctx context.Context, console *Console) error {
	req := client.ForkInstanceRequest{
		Count: c.Count, SessionIDs: c.Session, TTL: c.TTL.Seconds(), Idle: c.Idle.Seconds(), WaitMS: c.Wait.Milliseconds(),
	}
	if len(c.Session) > 0 {
		if c.Count != 1 && c.Count != len(c.Session) {
			return usageErrorf("--count %d does not go with %d sessions", c.Count, len(c.Session))
		}
		req.Count = len(c.Session)
	}
	for name, d := range map[string]time.Duration{"ttl": c.TTL, "idle": c.Idle, "wait": c.Wait} {
		if d < 0 {
			return usageErrorf("--%s must be more than 0", name)
		}
	}
	var err error
	if req.Env, err = environment(console, c.Env); err != nil {
		return usageError{err}
	}
	if req.Labels, err = labelsIn(c.Label); err != nil {
		return err
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	ctx, leave := untilSignal(ctx)
	defer leave()
	id, err := instanceNamed(ctx, broker, c.Instance)
	if err != nil {
		return err
	}
	stop := startProgress(console, func() string { return fmt.Sprintf("making %d copies of %s", req.Count, c.Instance) })
	answer, page, err := answered[map[string]json.RawMessage](ctx, broker, client.Request{
		Method: http.MethodPost, Path: pathInstances + "/" + url.PathEscape(id) + "/fork", Body: req,
	})
	stop()
	if err != nil {
		return err
	}
	var copies []listed
	if err := json.Unmarshal(page["instances"], &copies); err != nil {
		return unreadable{errors.New("what answers is no sandbox broker")}
	}
	return instanceList(time.Now(), false).print(console, c.name(), copies, answer)
}

// name is how something that was made is printed: a script wants its ID, and so does a person.
func (o Output) name() string {
	if o.Output == "table" {
		return "name"
	}
	return o.Output
}
