package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	pathInstances      = "/api/v1/instances"
	pathAdminInstances = "/api/admin/sandbox/instances"
)

// listed is an instance of a list; Tenant is there in those of administrators alone.
type listed struct {
	Tenant string `json:"tenant" complete:"tenants"`
	client.Instance
}

// instanceList is how instances are shown at a time, with their tenants or without.
func instanceList(now time.Time, tenants bool) listing[listed] {
	columns := []table.Column[listed]{
		{Head: "ID", Cell: func(i listed) string { return shortID(i.ID) }},
		{Head: "SESSION", Cell: func(i listed) string { return i.SessionID }},
		{Head: "PROVIDER", Cell: func(i listed) string { return i.Provider }},
		{Head: "TEMPLATE", Cell: func(i listed) string { return i.Template }},
		{Head: "STATE", Cell: func(i listed) string { return i.State }, Color: func(i listed) table.Color { return colorOf(i.State) }},
		{Head: "EXECUTIONS", Cell: func(i listed) string { return fmt.Sprint(i.Executions) }},
		{Head: "AGE", Cell: func(i listed) string { return table.Duration(now.Sub(i.CreatedAt)) }},
		{Head: "EXPIRES", Cell: func(i listed) string { return expiry(i.Instance, now) }},
		{Head: "LABELS", Wide: true, Cell: func(i listed) string { return labels(i.Labels) }},
		{Head: "FRONT DOOR", Wide: true, Cell: func(i listed) string { return i.FrontDoor }},
		{Head: "FULL ID", Wide: true, Cell: func(i listed) string { return i.ID }},
	}
	if tenants {
		columns = slices.Insert(columns, 0, table.Column[listed]{Head: "TENANT", Cell: func(i listed) string { return i.Tenant }})
	}
	return listing[listed]{columns: columns, name: func(i listed) string { return i.ID }}
}

// shortID is enough of an ID to name an instance by.
func shortID(id string) string {
	part := lastPart(id)
	return part[:min(len(part), 12)]
}

// expiry is when an instance is destroyed unless it is used before.
func expiry(i client.Instance, now time.Time) string {
	at := i.ExpiresAt
	if idle := i.LastUsedAt.Add(time.Duration(i.Idle * float64(time.Second))); i.Idle > 0 && i.Executions == 0 && idle.Before(at) {
		at = idle
	}
	return "in " + table.Duration(max(0, at.Sub(now)))
}

func labels(of map[string]string) string {
	pairs := make([]string, 0, len(of))
	for name, value := range of {
		pairs = append(pairs, name+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// colorOf is the color of a state of anything.
func colorOf(state string) table.Color {
	switch state {
	case "running", "ready", "applied", "succeeded":
		return table.Green
	case "paused", "starting", "restarting", "draining", "unchanged", "would_apply":
		return table.Yellow
	case "":
		return table.Plain
	default:
		return table.Red
	}
}

// Ps lists instances, or the commands in one.
type Ps struct {
	Instance   string   `arg:"" optional:"" help:"An instance, whose commands are listed instead." complete:"instances"`
	AllTenants bool     `name:"all-tenants" short:"a" aliases:"all" help:"Those of all tenants; takes an administrator's token."`
	Tenant     string   `placeholder:"NAME" help:"Those of this tenant; with --all-tenants." complete:"tenants"`
	Label      []string `short:"l" sep:"none" placeholder:"NAME=VALUE" help:"Those that have this label. Again for more, all of which they must have."`
	Session    string   `short:"s" placeholder:"NAME" help:"Those of this session." complete:"sessions"`
	Provider   string   `short:"p" placeholder:"ID" help:"Those at this provider." complete:"providers"`
	State      string   `placeholder:"STATE" help:"Those in this state, such as running or paused."`
	Quiet      bool     `short:"q" help:"The same as --output name."`
	Output
	Connection
}

// Help is shown below the usage.
func (*Ps) Help() string {
	return `The ID that is shown names an instance in other commands, as its session and its full
ID do; --output name has the full ones.

Examples:
  sandbox-broker ps
  sandbox-broker ps build
  sandbox-broker ps --label team=data --state paused
  sandbox-broker rm $(sandbox-broker ps -q --label job=nightly)
  sandbox-broker ps --all-tenants --output wide --context admin`
}

// Run lists.
func (c *Ps) Run(ctx context.Context, console *Console) error {
	if c.Tenant != "" && !c.AllTenants {
		return usageErrorf("--tenant goes with --all-tenants, and an administrator's token")
	}
	if c.AllTenants && len(c.Label) > 0 {
		return usageErrorf("--label does not go with --all-tenants: labels are the tenant's own notes")
	}
	if c.Quiet {
		c.Output.Output = "name"
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	if c.Instance != "" {
		return c.commands(ctx, console, broker)
	}
	path, field := pathInstances, "instances"
	if c.AllTenants {
		path, field = pathAdminInstances, "data"
	}
	answer, items, err := pages[listed](ctx, broker, path, field, c.query())
	if err != nil {
		return err
	}
	if c.State != "" {
		answer, items, err = inState(answer, field, c.State)
	}
	if err != nil {
		return err
	}
	return instanceList(time.Now(), c.AllTenants).print(console, c.Output.Output, items, answer)
}

// commands lists the commands in an instance.
func (c *Ps) commands(ctx context.Context, console *Console, broker *client.Client) error {
	if len(c.query()) > 0 || c.AllTenants || c.State != "" {
		return usageErrorf("with an instance, ps lists all commands in it: the other flags are for instances")
	}
	id, err := instanceNamed(ctx, broker, c.Instance)
	if err != nil {
		return err
	}
	answer, list, err := answered[client.CommandList](ctx, broker, client.Request{Path: pathInstances + "/" + url.PathEscape(id) + "/commands"})
	if err != nil {
		return err
	}
	return commandList(time.Now()).print(console, c.Output.Output, list.Commands, answer)
}

// query is what the API filters by.
func (c *Ps) query() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"session_id": c.Session, "provider": c.Provider, "tenant": c.Tenant} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if len(c.Label) > 0 {
		query["label"] = c.Label
	}
	return query
}

// inState is what of an answer is in a state, which the API does not filter by.
func inState(answer json.RawMessage, field, state string) (json.RawMessage, []listed, error) {
	var all map[string][]json.RawMessage
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, nil, err
	}
	kept, items := []json.RawMessage{}, []listed{}
	for _, one := range all[field] {
		var i listed
		if err := json.Unmarshal(one, &i); err != nil {
			return nil, nil, err
		}
		if i.State == state {
			kept, items = append(kept, one), append(items, i)
		}
	}
	return listOf(field, kept), items, nil
}

// Create makes an instance.
type Create struct {
	Session     string        `short:"s" placeholder:"NAME" help:"Your name for a piece of work, and for its instance. Asking again returns the same instance." complete:"sessions"`
	Language    string        `short:"l" placeholder:"NAME" help:"What most of the code will be written in."`
	Template    string        `placeholder:"NAME" help:"What the instance is made for; beats --language."`
	Provider    string        `short:"p" placeholder:"ID" help:"The provider, if it shall not be the usual one." complete:"providers"`
	Snapshot    string        `placeholder:"ID" help:"A snapshot to go on from: see snapshot ls."`
	Requirement []string      `short:"r" sep:"none" placeholder:"PACKAGE" help:"A package to install. Again for more."`
	Env         []string      `short:"e" sep:"none" placeholder:"NAME=VALUE" help:"A variable for all that runs in it; NAME alone takes the value from here. Again for more."`
	Label       []string      `sep:"none" placeholder:"NAME=VALUE" help:"A note to find it by: see ps. Again for more."`
	TTL         time.Duration `name:"ttl" placeholder:"DURATION" help:"How long it lives, such as 1h; use makes it longer."`
	Idle        time.Duration `placeholder:"DURATION" help:"How long it lives without use."`
	Volume      []string      `sep:"none" placeholder:"NAME:PATH[:ro]" help:"A volume, and where code finds it; with :ro it cannot change it. Again for more."`
	Capability  []string      `placeholder:"NAME" help:"What its provider must be capable of, such as files. Again for more."`
	Wait        time.Duration `placeholder:"DURATION" help:"How long it may wait for its turn when a quota has no room, such as 30s."`
	Allow       []string      `sep:"none" placeholder:"HOST[:PORT]" help:"Of the hosts that the operator allows, one that it may reach. Again for more; without it all of them."`
	NoNetwork   bool          `name:"no-network" help:"It shall reach nothing."`
	Output
	Connection
}

// Help is shown below the usage.
func (*Create) Help() string {
	return `Prints the ID of the instance, or with --output json all of it. It lives until it is
removed, or until its time is over.

Examples:
  sandbox-broker create --session build --template bash --ttl 1h
  sandbox-broker create --language python --requirement numpy --label team=data
  id=$(sandbox-broker create)`
}

// Run makes an instance, and says so meanwhile.
func (c *Create) Run(ctx context.Context, console *Console) error {
	req := client.CreateInstanceRequest{
		SessionID: c.Session, Language: c.Language, Template: c.Template, Provider: c.Provider, Requirements: c.Requirement,
		Snapshot: c.Snapshot, TTL: c.TTL.Seconds(), Idle: c.Idle.Seconds(), Capabilities: c.Capability, WaitMS: c.Wait.Milliseconds(),
	}
	for name, d := range map[string]time.Duration{"ttl": c.TTL, "idle": c.Idle, "wait": c.Wait} {
		if d < 0 {
			return usageErrorf("--%s must be more than 0", name)
		}
	}
	var err error
	if req.Volumes, err = mountsOf(c.Volume); err != nil {
		return err
	}
	if req.Network, err = networkOf(c.Allow, c.NoNetwork); err != nil {
		return usageError{err}
	}
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
	stop := startProgress(console, func() string { return "making an instance" })
	answer, made, err := answered[listed](ctx, broker, client.Request{Method: "POST", Path: pathInstances, Body: req})
	stop()
	if err != nil {
		return err
	}
	return instanceList(time.Now(), false).print(console, c.name(), []listed{made}, answer)
}

// networkOf is the network that flags ask for; nil for what the operator allows.
func networkOf(allow []string, none bool) (*client.Network, error) {
	if !none && len(allow) == 0 {
		return nil, nil
	}
	if none && len(allow) > 0 {
		return nil, errors.New("--allow and --no-network do not go together")
	}
	asked := &client.Network{None: none}
	for _, text := range allow {
		rule := client.NetworkRule{Host: text}
		if host, port, err := net.SplitHostPort(text); err == nil {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil || n == 0 {
				return nil, fmt.Errorf("--allow %s: write HOST or HOST:PORT", text)
			}
			rule.Host, rule.Ports = host, []int64{int64(n)}
		}
		asked.Allow = append(asked.Allow, rule)
	}
	return asked, nil
}

// Rm destroys instances.
type Rm struct {
	Instance   []string `arg:"" optional:"" help:"Instances: their IDs, the beginnings of the last parts of those, or their sessions." complete:"instances"`
	AllTenants bool     `name:"all-tenants" short:"a" help:"They may be anybody's: takes an administrator's token, and full IDs."`
	Force      bool     `short:"f" help:"Also while something runs in them. One that is not there is no failure, and neither is none at all."`
	Connection
}

// Help is shown below the usage.
func (*Rm) Help() string {
	return `Prints the ID of each instance that is gone. Where something runs in one it stays, unless
--force is there. The exit code is 0 if all are gone.

Examples:
  sandbox-broker rm build
  sandbox-broker rm --force $(sandbox-broker ps -q)`
}

// Run destroys one after the other, and goes on behind one that cannot be.
func (c *Rm) Run(ctx context.Context, console *Console) error {
	if len(c.Instance) == 0 {
		if c.Force {
			return nil
		}
		return usageErrorf("name an instance: sandbox-broker ps lists them")
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	ctx, leave := untilSignal(ctx)
	defer leave()
	code := 0
	for _, name := range c.Instance {
		stop := startProgress(console, func() string { return "removing " + name })
		id, err := c.remove(ctx, broker, name)
		stop()
		if err == nil {
			_, err = fmt.Fprintln(console.Out, id)
		} else if c.Force && isGone(err) {
			err = nil
		}
		if err != nil {
			Tell(console.Err, fmt.Errorf("%s: %w", name, err))
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

func (c *Rm) remove(ctx context.Context, broker *client.Client, name string) (id string, err error) {
	if c.AllTenants {
		if strings.Count(name, ":") != 2 {
			return "", usageErrorf("with --all-tenants it takes the full ID, as ps --all-tenants --output name prints it")
		}
		if !c.Force {
			found, err := broker.Admin().Instance(ctx, name)
			if err != nil {
				return "", err
			}
			if err := idle(found.Data.Instance); err != nil {
				return "", err
			}
		}
		return name, broker.Admin().KillInstance(ctx, name)
	}
	if id, err = instanceNamed(ctx, broker, name); err != nil {
		return "", err
	}
	if !c.Force {
		found, err := broker.Instance(ctx, id)
		if err != nil {
			return "", err
		}
		if err := idle(found); err != nil {
			return "", err
		}
	}
	return id, broker.DestroyInstance(ctx, id)
}

// idle refuses an instance in which something runs.
func idle(i client.Instance) error {
	if i.Executions == 0 {
		return nil
	}
	what := "something runs"
	if i.Executions > 1 {
		what = fmt.Sprintf("%d things run", i.Executions)
	}
	return errors.New(what + " in it: --force ends that")
}

// isGone reports whether an error says that there is no such instance.
func isGone(err error) bool {
	problem, refused := errors.AsType[*client.Problem](err)
	return refused && problem.Code == "SB013"
}
