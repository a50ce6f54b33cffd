package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Directory knows which of several brokers has what. It is asked only for what this one does
// not have, and answers with a peer that is alive and has it; false where nobody has it, or
// who had it is dead. It may answer from what was true a moment ago: a call that was passed
// on is not passed on again.
type Directory interface {
	// OwnerOf is asked for an instance of a tenant by its ID.
	OwnerOf(ctx context.Context, tenant, id string) (Peer, bool, error)
	// OwnerOfNamed is asked for an instance of whomever by the part of its ID that nobody
	// guesses. Nobody has looked yet who asks.
	OwnerOfNamed(ctx context.Context, instance string) (Peer, bool, error)
	// OwnerOfSession is asked for the instances of a session, those that are being made
	// included.
	OwnerOfSession(ctx context.Context, tenant, session string) (Peer, bool, error)
	// OwnerOfSnapshot is asked for a snapshot of a tenant by its ID, of whichever tenant if that
	// is empty, and OwnerOfVolume for a volume by its name. What these are is on a disk, and is
	// there again when its broker is: the error is ErrDown for one whose broker is dead.
	OwnerOfSnapshot(ctx context.Context, tenant, id string) (Peer, bool, error)
	OwnerOfVolume(ctx context.Context, tenant, name string) (Peer, bool, error)
	Roll
}

// ErrDown says that the broker which has something is dead, and that nobody else has it. It is
// an SB009.
var ErrDown error = downError{}

type downError struct{}

func (downError) Error() string { return "the broker that has it is dead" }

// Unwrap is what the client is told.
func (downError) Unwrap() error {
	return unavailable("The broker that has it is down. It is there again with that.")
}

// Sought is an instance or a session that no broker has that lives. One of the fields is set.
type Sought struct {
	// Instance is an ID, Name the last part of one, and Session what stands before that.
	Instance, Name, Session string
}

// Heir goes on with what brokers had that are dead.
type Heir interface {
	// Inherit makes what is sought this broker's, where a dead one had it, and this one can
	// go on with it. here says that this broker has it from now on; another one may have it
	// where it is false. An error says that it cannot be decided at this moment; it is
	// ErrAwaited for what somebody else may go on with, or this one in a moment.
	Inherit(ctx context.Context, what Sought) (here bool, err error)
}

// inheritTimeout bounds it: a cloud is asked.
const inheritTimeout = 10 * time.Second

// directoryTimeout bounds a look into the directory.
const directoryTimeout = 2 * time.Second

// Finder finds the brokers that have what this one does not. The zero value is that of a broker
// that is alone. Its methods may be called concurrently.
type Finder struct {
	directory Directory // nil where this broker is alone
	heir      Heir      // nil where nobody goes on with anything
	has       func(tenant, session string) bool
	life      context.Context
	logger    hclog.Logger
}

// NewFinder returns a finder that asks a directory until life ends; nil stands for a broker
// that is alone, and an heir of nil for nobody who goes on with what others had. has reports
// whether this broker has anything of a session.
func NewFinder(life context.Context, directory Directory, heir Heir, has func(tenant, session string) bool, logger hclog.Logger) Finder {
	return Finder{directory: directory, heir: heir, has: has, life: life, logger: logger}
}

// InstanceElsewhere is asked when an instance of a tenant was not found, with the error that
// says so. It returns an ElsewhereError for one that a peer has, SB009 where that cannot be
// found out, and else the error as it is.
func (f Finder) InstanceElsewhere(ctx context.Context, owner, id string, absent error) error {
	if !f.maybe(absent) || !isIDOf(owner, id) {
		return absent
	}
	return f.ask(ctx, absent, Sought{Instance: id}, func(ctx context.Context) (Peer, bool, error) { return f.directory.OwnerOf(ctx, owner, id) })
}

// NamedElsewhere is InstanceElsewhere for one whose owner is not known.
func (f Finder) NamedElsewhere(ctx context.Context, name string, absent error) error {
	if !f.maybe(absent) || !isName(name) {
		return absent
	}
	return f.ask(ctx, absent, Sought{Name: name}, func(ctx context.Context) (Peer, bool, error) { return f.directory.OwnerOfNamed(ctx, name) })
}

// SessionElsewhere returns an ElsewhereError for a session of the tenant that a peer has,
// SB009 where that cannot be found out, and else nil.
func (f Finder) SessionElsewhere(ctx context.Context, who tenant.Tenant, session string) error {
	if f.directory == nil || session == "" || f.has(who.Name, session) {
		return nil
	}
	return f.ask(ctx, nil, Sought{Session: who.Name + ":" + session}, func(ctx context.Context) (Peer, bool, error) {
		return f.directory.OwnerOfSession(ctx, who.Name, session)
	})
}

// SnapshotElsewhere is InstanceElsewhere for a snapshot of the tenant; of whichever tenant if the
// owner is empty.
func (f Finder) SnapshotElsewhere(owner, id string, absent error) error {
	if !f.maybe(absent) {
		return absent
	}
	return cmp.Or(f.look(f.life, func(ctx context.Context) (Peer, bool, error) { return f.directory.OwnerOfSnapshot(ctx, owner, id) }), absent)
}

// VolumeElsewhere is InstanceElsewhere for a volume of the tenant. Without an error it returns
// nil where nobody else has it.
func (f Finder) VolumeElsewhere(owner, name string, absent error) error {
	if f.directory == nil || absent != nil && !f.maybe(absent) {
		return absent
	}
	return cmp.Or(f.look(f.life, func(ctx context.Context) (Peer, bool, error) { return f.directory.OwnerOfVolume(ctx, owner, name) }), absent)
}

// maybe reports whether a peer may have what was not found.
func (f Finder) maybe(absent error) bool {
	return f.directory != nil && absent != nil && sdk.CodeOf(absent) == sdk.CodeNotFound
}

// errInherited is what is said of an instance that this broker has, and whose provider has not
// told of it yet.
var errInherited = unavailable("The broker that had it is dead. This one goes on with it.")

// ErrAwaited says that the broker which had something has just died, and that nobody has gone on
// with it so far. It is an SB009.
var ErrAwaited = unavailable("The broker that had it is dead. Another one may go on with it.")

// ask finds out who has what is sought. absent is returned where nobody has it.
func (f Finder) ask(ctx context.Context, absent error, what Sought, who func(context.Context) (Peer, bool, error)) error {
	err := f.look(ctx, who)
	if err != nil || f.heir == nil {
		return cmp.Or(err, absent)
	}
	inheriting, cancel := context.WithTimeout(ctx, inheritTimeout)
	defer cancel()
	here, err := f.heir.Inherit(inheriting, what)
	switch {
	case errors.Is(err, ErrAwaited):
		return cmp.Or(f.look(ctx, who), err)
	case err != nil:
		return f.unknown(ctx, err)
	case here && absent != nil:
		return errInherited
	case here:
		return nil
	}
	return cmp.Or(f.look(ctx, who), absent) // another one may have been faster
}

// look returns an ElsewhereError for what a peer has that lives.
func (f Finder) look(ctx context.Context, who func(context.Context) (Peer, bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	owner, found, err := who(limited)
	switch {
	case errors.Is(err, ErrDown):
		return err
	case err != nil:
		return f.unknown(ctx, err)
	case found:
		return Elsewhere(owner)
	}
	return nil
}

func (f Finder) unknown(ctx context.Context, err error) error {
	if ctx.Err() == nil { // else it is the caller who waits no longer
		f.logger.Warn("it could not be found out which broker has something", "error", err)
	}
	return fmt.Errorf("%w (%w)", unavailable("It cannot be found out at this moment which broker has it."), err)
}

// isIDOf reports whether a text may be the ID of an instance of a tenant. What cannot be one
// is not looked for.
func isIDOf(owner, id string) bool {
	rest, ok := strings.CutPrefix(id, owner+":")
	session, name, whole := strings.Cut(rest, ":")
	return ok && whole && session != "" && isName(name)
}

// nameLength is that of the part of an instance's ID that nobody guesses.
const nameLength = 20

// isName reports whether a text has the form of that part.
func isName(text string) bool {
	return len(text) == nameLength && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}
