package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// plugin starts the executable of a provider as the broker does.
type plugin struct {
	launcher *pluginhost.Launcher
	spec     pluginhost.Spec
	scratch  string
}

func newPlugin(path, scratch string) (*plugin, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	launcher, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{
		PluginDir: filepath.Dir(path), StartTimeout: time.Minute, Watchdog: "/proc/self/exe",
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
	})
	return &plugin{launcher, pluginhost.Spec{Label: "live", Plugin: filepath.Base(path)}, scratch}, err
}

// schema is what the plugin says of its settings.
func (p *plugin) schema(ctx context.Context) (sdk.Schema, error) {
	process, err := p.launcher.Launch(ctx, p.spec)
	if err != nil {
		return nil, pluginhost.WithLastWords(err)
	}
	defer process.Stop(context.WithoutCancel(ctx))
	return process.Provider().Describe().Schema, nil
}

// opener starts processes whose brokers are in the ledger, and whose sandboxes are billed.
func (p *plugin) opener(place string, ledger ledger, bill *bill) providertest.Opener {
	return func(ctx context.Context) (*providertest.Plugin, error) {
		process, err := p.launcher.Launch(ctx, p.spec)
		if err != nil {
			return nil, pluginhost.WithLastWords(err)
		}
		return &providertest.Plugin{
			Conn: &watched{ClientConnInterface: process.Conn(), place: place, ledger: ledger, bill: bill},
			Stop: func(ctx context.Context) error {
				_, err := providerv1.NewProviderServiceClient(process.Conn()).Close(ctx, &providerv1.CloseRequest{})
				process.Stop(ctx)
				return wire.DecodeError(err)
			},
			Kill: process.Kill,
		}, nil
	}
}

// watched is a connection to a plugin that takes down what will have to be removed and
// what has to be paid.
type watched struct {
	grpc.ClientConnInterface
	place  string
	ledger ledger
	bill   *bill

	mu     sync.Mutex
	broker string // that the plugin was configured for
}

// Invoke implements grpc.ClientConnInterface.
func (w *watched) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	switch req := args.(type) {
	case *providerv1.ConfigureRequest:
		if err := w.ledger.add(entry{req.GetBrokerId(), req.GetLabel(), w.place, time.Now()}); err != nil {
			return err
		}
		w.mu.Lock()
		w.broker = req.GetBrokerId()
		w.mu.Unlock()
	case *providerv1.CreateRequest:
		// What a service charges may begin before it answers, and without an answer.
		asked := "asked " + rand.Text()
		w.bill.begin(asked)
		err := w.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
		if made, ok := reply.(*providerv1.CreateResponse); ok && err == nil {
			w.bill.rename(asked, w.named(made.GetInstance().GetId()))
			return nil
		}
		w.bill.end(asked)
		return err
	case *providerv1.DestroyRequest:
		err := w.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
		if err == nil {
			w.bill.end(w.named(req.GetInstanceId()))
		}
		return err
	}
	return w.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
}

// named is a sandbox on the bill. To destroy one of another broker is answered well, and
// does nothing.
func (w *watched) named(instance string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broker + " " + instance
}

// lateCreation is how long after a kill a service may still make what it was asked for.
const lateCreation = 10 * time.Minute

// clean destroys what was made under the entries of the ledger for this place, and forgets
// those under which nothing can come any more. When sure, that is all of them. It returns
// how many entries are of other places.
func (p *plugin) clean(ctx context.Context, cloud cloud, ledger ledger, say func(string, ...any), sure bool) (elsewhere int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cleaningTime, errCleaningTime)
	defer cancel()
	entries, err := ledger.all()
	if err != nil {
		return 0, err
	}
	var kept []entry
	var errs []error
	for _, e := range entries {
		if e.place != cloud.place() {
			elsewhere++
			kept = append(kept, e)
			continue
		}
		err := p.cleanEntry(ctx, cloud, e, say)
		if err != nil {
			errs = append(errs, fmt.Errorf("broker %s: %w", e.broker, err))
		}
		if err != nil || !sure && time.Since(e.at) < lateCreation {
			kept = append(kept, e)
		}
	}
	if ctx.Err() != nil {
		errs = append(errs, context.Cause(ctx))
	}
	if len(kept) < len(entries) {
		errs = append(errs, ledger.keep(kept))
	}
	return elsewhere, errors.Join(errs...)
}

func (p *plugin) cleanEntry(ctx context.Context, cloud cloud, e entry, say func(string, ...any)) (err error) {
	process, err := p.launcher.Launch(ctx, p.spec)
	if err != nil {
		return pluginhost.WithLastWords(err)
	}
	defer process.Stop(context.WithoutCancel(ctx))
	provider := process.Provider()
	settings, mistakes := provider.Describe().Schema.Resolve(cloud.settings())
	if len(mistakes) > 0 {
		return mistakes[0]
	}
	state, err := os.MkdirTemp(p.scratch, runDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(state)) }()
	if err := provider.Configure(ctx, sdk.ConfigureRequest{Label: e.label, BrokerID: e.broker, StateDir: state, Settings: settings}); err != nil {
		return err
	}
	left, err := provider.List(ctx)
	for _, instance := range left {
		if owner, ok := instance.Labels[sdk.LabelBroker]; ok && owner != e.broker {
			err = errors.Join(err, fmt.Errorf("the provider lists %q of the broker %q, which was left alone", instance.ID, owner))
			continue
		}
		say("removing %s, which a run had left", instance.ID)
		err = errors.Join(err, provider.Destroy(ctx, instance.ID))
	}
	return errors.Join(err, cleanSnapshots(ctx, provider, e, say))
}

// cleanSnapshots deletes the snapshots that a run had left, which are paid for too.
func cleanSnapshots(ctx context.Context, provider sdk.Provider, e entry, say func(string, ...any)) error {
	snapshots, can := provider.(sdk.Snapshotter)
	if !can || !slices.Contains(provider.Describe().Capabilities, sdk.CapabilitySnapshots) {
		return nil
	}
	left, err := snapshots.ListSnapshots(ctx)
	for _, one := range left {
		if owner, ok := one.Labels[sdk.LabelBroker]; ok && owner != e.broker {
			continue // as above
		}
		say("removing the snapshot %s, which a run had left", one.ID)
		err = errors.Join(err, snapshots.DeleteSnapshot(ctx, one.ID))
	}
	return err
}
