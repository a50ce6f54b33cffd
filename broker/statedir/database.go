package statedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
)

// movedSuffix is that of a state file whose records are in a database.
const movedSuffix = ".moved"

// OpenDatabase opens the state of this directory's broker in a database. The records of a
// state file that is in the directory are brought there first.
func (d *Dir) OpenDatabase(ctx context.Context, url, version string, logger hclog.Logger) (_ *postgres.Store, err error) {
	moving, err := d.stateToMove(logger)
	if err != nil {
		return nil, err
	}
	if moving != nil {
		defer func() { err = errors.Join(err, moving.Close()) }()
	}
	stored := ""
	if moving != nil {
		if stored, err = moving.BrokerID(); err != nil {
			return nil, err
		}
	}
	if err := d.identify(stored); err != nil {
		return nil, err
	}
	holder, err := d.holder()
	if err != nil {
		return nil, err
	}
	database, err := postgres.Open(ctx, postgres.Options{
		URL: url, Broker: d.id, Holder: holder, Version: version, Expected: d.known && moving == nil, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	if moving == nil {
		part, err := store.PartMoved(database)
		if part {
			err = fmt.Errorf("the database has a part of the records of %s alone, since the broker ended while it brought them there: put that file back and start the broker again", d.file())
		}
		if err != nil {
			return nil, errors.Join(err, database.Close())
		}
		return database, nil
	}
	moved, err := store.Move(ctx, moving, database)
	if err == nil {
		err = os.Rename(d.file(), d.file()+movedSuffix)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bring the state file into the database: %w", err), database.Close())
	}
	logger.Info("the records of the state file are in the database now", "records", moved, "file", d.file()+movedSuffix)
	return database, nil
}

// stateToMove opens the state file, nil if there is none.
func (d *Dir) stateToMove(logger hclog.Logger) (*store.Store, error) {
	if _, err := os.Lstat(d.file()); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return store.Open(d.file(), store.Options{Logger: logger})
}

// holder names this directory on this run of this machine: while it is locked, nobody else
// has it.
func (d *Dir) holder() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("tell this machine from others: %w", err)
	}
	var lock unix.Stat_t
	if err := unix.Fstat(int(d.lock.Fd()), &lock); err != nil {
		return "", fmt.Errorf("tell the state directory from others: %w", err)
	}
	return fmt.Sprintf("%s/%d/%d", strings.TrimSpace(string(boot)), lock.Dev, lock.Ino), nil
}
