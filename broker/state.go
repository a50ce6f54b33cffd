package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
	"github.com/sandbox-broker/sandbox-broker/broker/disk"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/statedir"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// keeper is where the records of the broker are: in a file or in a database.
type keeper interface {
	store.State
	SetPatience(d time.Duration)
	Disk() *disk.Meter
	// Err says why it cannot be used any more.
	Err() error
	Close() error
}

// openState opens the state where the configuration says that it is.
func (b *broker) openState(ctx context.Context, cfg *config.Config) (keeper, error) {
	logger := b.logger.Named("state")
	if cfg.Database == "" {
		file, err := b.state.OpenStore(ctx, logger)
		if err != nil {
			return nil, err
		}
		if b.backups, err = statedir.ServeBackups(b.state.Path(), file.Snapshot, logger); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return file, nil
	}
	database, err := b.state.OpenDatabase(ctx, cfg.Database, b.options.Version, logger)
	if err != nil {
		return nil, err
	}
	b.database = database
	b.options.Directory, b.options.PeersAt = database, database.PeersAt
	return database, nil
}

// closeBackups ends what gives away the state file, if there is one.
func (b *broker) closeBackups() error {
	if b.backups == nil {
		return nil
	}
	return b.backups.Close()
}

// held says whether this process may begin anything: with a state in a database, as long as
// nobody else can have it.
func (b *broker) held() error {
	if b.database == nil {
		return nil
	}
	return b.database.Held()
}

// lease is what plugins are told of how long the broker may have effects; "" where nobody else
// can have its state.
func (b *broker) lease() string {
	if b.database == nil {
		return ""
	}
	epoch, left := b.database.Lease()
	return wire.LeaseText(b.state.ID(), epoch, left)
}

// stateErr says why nothing can be begun for the state's sake.
func (b *broker) stateErr() error {
	if err := b.store.Err(); err != nil {
		return err
	}
	return b.held()
}

// lost is closed when another process has the state; nil where that cannot be.
func (b *broker) lost() <-chan struct{} {
	if b.database == nil {
		return nil
	}
	return b.database.Lost()
}

// errLost ends a broker whose state another process has.
var errLost = errors.New("another process has taken over the state of this broker: two have the same data directory, or a copy of it")

// loadKeys reads the keys that outlive a process, from files. That of preview links is the one
// of all brokers on a database, where there is one: a link is good with each of them.
func (b *broker) loadKeys(ctx context.Context) (previewKey, snapshotSecret []byte, err error) {
	if previewKey, err = preview.LoadKey(b.state.PreviewKeyFile()); err != nil {
		return nil, nil, err
	}
	if b.database != nil {
		text, err := b.database.Shared(ctx, "preview_key", preview.FormatKey(previewKey))
		if err != nil {
			return nil, nil, err
		}
		if previewKey, err = preview.ParseKey(text); err != nil {
			return nil, nil, fmt.Errorf("the entry preview_key in the database %w", err)
		}
	}
	if snapshotSecret, err = snapshot.LoadSecret(b.state.SnapshotSecretFile()); err != nil {
		return nil, nil, err
	}
	b.previewKey, b.snapshotSecret = preview.FormatKey(previewKey), snapshot.FormatSecret(snapshotSecret)
	return previewKey, snapshotSecret, nil
}
