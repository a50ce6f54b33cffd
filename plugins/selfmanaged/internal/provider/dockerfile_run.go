package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/imagestore"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/layers"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/gateway"
)

// buildBounds are what one RUN of a Dockerfile may take.
type buildBounds struct {
	time                               time.Duration
	memoryMB, workspaceMB, diskMB, pid int64
}

var usualBuildBounds = buildBounds{time: 30 * time.Minute, memoryMB: installMemoryMB, workspaceMB: installWorkspaceMB, diskMB: 10 << 10, pid: 1024}

// sayEvery is how often a line of what a RUN prints is told.
const sayEvery = 200 * time.Millisecond

// buildsHide are directories of a sandbox that are no part of its root file system.
func buildsHide() []string {
	return []string{"dev", "proc", "sys", "tmp", "run", "workspace", "home/user", "mnt/user-data", "opt/sandbox"}
}

// buildFiles are files that a RUN sees as those of a sandbox.
var buildFiles = []string{"etc/hosts", "etc/resolv.conf"}

// prepareRootfs is finishRootfs for a root file system that a RUN of a Dockerfile changes:
// users are those of the image.
func prepareRootfs(tree *layers.Tree) {
	for _, dir := range runsc.MountPoints() {
		tree.PutDirectory(dir)
	}
	for _, path := range buildFiles {
		tree.PutFile(path, runsc.OwnFiles()[path])
	}
	tree.PutFile(strings.TrimPrefix(confine.GuestPath, "/"), "")
}

// changer is a sandbox whose root file system can be written to.
type changer interface {
	Changes(ctx context.Context) (io.ReadCloser, error)
}

var _ changer = (*runsc.Sandbox)(nil)

// runStep implements imagestore.Runner: the command is run in a sandbox of its own, and what is
// in the upper layer of its root file system then is the layer.
func (p *Provider) runStep(ctx context.Context, of imagestore.Running) (_ io.ReadCloser, err error) {
	if os.Geteuid() != 0 {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "dockerfile", "cannot be built, line %d: RUN needs a broker that root runs", of.Line)
	}
	// The path is one of several words of an option.
	if strings.Contains(of.Scratch, ",") {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, "template_dir", "must not have a comma in it where a Dockerfile has a RUN")
	}
	s, err := p.sandboxes.startBuilding(ctx, of, p.builds)
	if err != nil {
		if ctx.Err() == nil {
			p.logger.Warn("no sandbox can be made for a RUN of a Dockerfile", "line", of.Line, "error", err)
			err = sdk.FieldErrorf(sdk.CodeCreateFailed, "dockerfile", "cannot be built, line %d: no sandbox starts for it: %s", of.Line, reasonOf(err))
		}
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Destroy(context.WithoutCancel(ctx)))
		}
	}()
	env, closeNetwork, err := buildNetwork(ctx, p, s, of)
	if err != nil {
		return nil, err
	}
	defer closeNetwork()
	if err := runIn(ctx, s, of, env, p.builds); err != nil {
		return nil, err
	}
	changes, err := s.running.(changer).Changes(ctx)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "what line %d of the Dockerfile has changed cannot be read: %w", of.Line, err)
	}
	reader, writer := io.Pipe()
	done := make(chan struct{})
	go func() { // ends with the archive, or when the reader is closed
		defer close(done)
		// Holes take no room of the sandbox, but here they do.
		bounded := &bounded{Reader: changes, left: 2 * p.builds.diskMB << 20, most: p.builds.diskMB}
		err := runsc.Layer(bounded, writer, append(buildsHide(), buildFiles...))
		if errors.Is(err, runsc.ErrNoChanges) {
			p.logger.Warn("what a RUN of a Dockerfile has changed cannot be read", "line", of.Line, "error", err)
			err = &layers.InvalidError{Reason: fmt.Sprintf("what it has changed cannot be read, as where it changes a file of more than %d MiB", fileMB(s.limits, p.builds))}
		}
		writer.CloseWithError(err)
		_ = changes.Close()
	}()
	return placedArchive{reader, done, func() error { return s.Destroy(context.WithoutCancel(ctx)) }}, nil
}

// bounded reads until there was too much.
type bounded struct {
	io.Reader
	left, most int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, &layers.InvalidError{Reason: fmt.Sprintf("it changes more than %d MiB of files", b.most)}
	}
	return n, err
}

// fileMB is the largest file that a RUN may write: gVisor has each in memory, whole, when it
// says what has changed, and leaves it to the collector of garbage then.
func fileMB(limits confine.Limits, bounds buildBounds) int64 {
	return min(bounds.diskMB, limits.MemoryMB/4)
}

// startBuilding starts the sandbox of a RUN.
func (m *maker) startBuilding(ctx context.Context, of imagestore.Running, bounds buildBounds) (*sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	limits := m.limits
	limits.MemoryMB = max(limits.MemoryMB, of.Request.MemoryMB, bounds.memoryMB)
	limits.WorkspaceMB = max(limits.WorkspaceMB, bounds.workspaceMB)
	limits.Processes = max(limits.Processes, bounds.pid)
	if of.Request.CPUs > 0 {
		limits.CPUs = of.Request.CPUs
	}
	diskMB := min(bounds.diskMB, max(of.Limits.Bytes>>20, 1))
	id := newID()
	raw, err := m.runtime.(templater).StartTemplate(id, runsc.Template{
		Rootfs: of.Rootfs, Limits: limits, Writable: &runsc.Writable{Dir: of.Scratch, MB: diskMB},
	})
	if err != nil {
		return nil, err
	}
	s := &sandbox{running: raw, ID: id, limits: limits, gvisor: m.runtime.GVisor(), layers: &usedLayers{}}
	if s.guest, err = guestclient.New(raw.Conn()); err == nil {
		err = s.prepare(ctx, &guestv1.PrepareRequest{
			MemoryLimit: limits.MemoryMB << 20, ProcessLimit: uint64(limits.Processes), FileSizeLimit: uint64(min(diskMB, fileMB(limits, bounds))) << 20, CodePolicy: m.codePolicy,
		})
	}
	if err != nil {
		destroyed := s.Destroy(context.WithoutCancel(ctx))
		return nil, errors.Join(m.explainStart(err, raw.Stderr()), destroyed)
	}
	return s, nil
}

// buildNetwork opens what the template's RUNs may reach. env is what the command needs to know
// of it.
func buildNetwork(ctx context.Context, p *Provider, s *sandbox, of imagestore.Running) (env map[string]string, end func(), err error) {
	policy := of.Request.Network
	if policy == nil || len(policy.Rules) == 0 || of.Offline {
		return nil, func() {}, nil
	}
	out, err := p.gateway.Instance("", s.ID, *policy)
	if err != nil {
		return nil, nil, err
	}
	opened, err := s.openNetwork(ctx, out, policy, p.logger)
	if err != nil {
		out.Close()
		return nil, nil, err
	}
	return gateway.Environment(opened.Proxy, opened.Certificates), func() { closeBoth(out, opened) }, nil
}

// rootPath is where programs are found of an image that does not say.
const rootPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// runIn runs the command of a RUN, and returns when nothing of it is left.
func runIn(ctx context.Context, s *sandbox, of imagestore.Running, network map[string]string, bounds buildBounds) error {
	failed := func(format string, args ...any) error {
		e := sdk.FieldErrorf(sdk.CodeInvalidRequest, "dockerfile", format, args...)
		e.Message = "cannot be built, " + e.Message
		return e
	}
	env := map[string]string{"PATH": rootPath, "HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/sh"}
	maps.Copy(env, network)
	maps.Copy(env, of.Env)
	guest, said := s.guest.Instance(), &lines{say: of.Say}
	command, err := guest.StartCommand(ctx, sdk.CommandRequest{Argv: of.Argv, Env: env, Cwd: of.Dir, Timeout: bounds.time, KeepOutput: installOutput})
	if err == nil {
		command, err = guest.ReadCommand(ctx, sdk.ReadCommandRequest{CommandID: command.ID, Follow: true}, func(o sdk.CommandOutput) error {
			said.add(o.Data)
			return nil
		})
	}
	said.end()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code == sdk.CodeInvalidRequest {
			return failed("line %d: %s", of.Line, e.Message)
		}
		// It has ended with all that was in it.
		return failed("line %d: the sandbox in which it ran has ended, as it does where its processes need more than there is; it said last: %s", of.Line, said.last())
	}
	switch command.State {
	case sdk.CommandSucceeded:
		return nil
	case sdk.CommandTimeout:
		return failed("line %d: the command did not end within %s; it said last: %s", of.Line, bounds.time, said.last())
	case sdk.CommandOutOfMemory:
		return failed("line %d: the command needs more than %d MiB of memory; it said last: %s", of.Line, s.limits.MemoryMB, said.last())
	default:
		return failed("line %d: the command ended with the exit code %d; it said last: %s", of.Line, command.ExitCode, said.last())
	}
}

// maxSaidLine is the longest line of output that is told, in bytes; keptSaid is how many of the
// last lines an error has.
const (
	maxSaidLine = 1000
	keptSaid    = 5
)

// lines tells the lines of an output, not more often than can be looked at.
type lines struct {
	say     func(line string)
	partial []byte
	kept    []string
	told    time.Time
	waiting string // not told yet
}

func (l *lines) add(data []byte) {
	for len(data) > 0 {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if room := maxSaidLine - len(l.partial); room > 0 {
			l.partial = append(l.partial, line[:min(len(line), room)]...)
		}
		data = rest
		if whole {
			l.line()
		}
	}
}

func (l *lines) line() {
	text := strings.TrimSpace(strings.ToValidUTF8(string(l.partial), "?"))
	l.partial = l.partial[:0]
	if text == "" {
		return
	}
	l.kept = append(l.kept, text)
	l.kept = l.kept[max(0, len(l.kept)-keptSaid):]
	l.waiting = text
	if now := time.Now(); now.Sub(l.told) >= sayEvery {
		l.told, l.waiting = now, ""
		l.say(text)
	}
}

func (l *lines) end() {
	l.line()
	if l.waiting != "" {
		l.say(l.waiting)
		l.waiting = ""
	}
}

// last are the last lines, as one of an error.
func (l *lines) last() string {
	const most = 600
	text := strings.Join(l.kept, " / ")
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[max(0, len(text)-most):], "")
}
