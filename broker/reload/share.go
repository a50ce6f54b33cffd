package reload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/agreement"
	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/atomicfile"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Sharing are the brokers with which this one shares a file of its configuration.
type Sharing interface {
	// Propose returns when all of them have agreed to a text and then was called, or with the
	// error of that, or because they have not agreed.
	Propose(ctx context.Context, text []byte, then func() error) error
}

// proposeAgain is after which a change is proposed again that could not be.
const proposeAgain = time.Second

// asideSuffix is that of a shared file which somebody has edited and which came in force nowhere.
const asideSuffix = ".not-in-force"

// proposal is the text of the shared file if a transition changes that.
func (t *transition) proposal() (text []byte, differs bool) {
	path, text := t.to.Shared()
	_, before := t.from.Config.Shared()
	return text, t.Sharing != nil && path != "" && !bytes.Equal(text, before)
}

// propose has the other brokers agree to a text, and then saves what there is to save.
func (t *transition) propose(ctx context.Context, text []byte, from source) error {
	var diags config.Diagnostics
	for _, r := range t.current {
		diags = diags.With(t.to.OpenSecrets(r.Block(), r.Description().Schema))
	}
	if diags.HasErrors() {
		return diags
	}
	if d, ok := from.(*draftSource); ok {
		// What Save would refuse is refused before others have agreed to it.
		if read, now := d.Revisions(); read != now {
			return sdk.Errorf(sdk.CodeConflict, "the files were changed meanwhile; look at them as they are and try again")
		}
	}
	err := t.Sharing.Propose(ctx, text, func() error {
		if err := from.Save(); err != nil {
			return &saveError{err}
		}
		return nil
	})
	switch coded, ok := errors.AsType[*sdk.Error](err); {
	case ok && (coded.Code == sdk.CodeConflict || coded.Code == sdk.CodeUnavailable):
		if _, unsaved := errors.AsType[*saveError](err); !unsaved {
			return &unaskedError{err}
		}
	}
	return err
}

// unaskedError says that the brokers have not been asked, or that nobody knows what they have
// decided.
type unaskedError struct{ err error }

func (e *unaskedError) Error() string { return e.err.Error() }

func (e *unaskedError) Unwrap() error { return e.err }

func isUnasked(err error) bool {
	_, unasked := errors.AsType[*unaskedError](err)
	return unasked
}

// tryAgain has the files read again in a moment, after the brokers could not be asked for what
// they say.
func (r *Reloader) tryAgain() {
	r.forget()
	r.Tasks.Go("propose the configuration again", func() {
		select {
		case <-time.After(proposeAgain):
		case <-r.Host.Life.Done():
			return
		}
		select {
		case r.again <- struct{}{}:
		default: // it is to be read already
		}
	})
}

// Adopt implements agreement.Broker.
func (r *Reloader) Adopt(ctx context.Context, number int64, text []byte, decide func(context.Context) error) error {
	from := &sharedSource{Reloader: r, text: text, decide: func() error { return decide(ctx) }}
	if err := from.Renew(); err != nil {
		return err
	}
	_, err := r.attempt(ctx, admin.Reload{
		Trigger: admin.TriggerPeers, Operation: fmt.Sprintf("shared generation %d", number),
		Diagnostics: from.warnings, Revision: from.cfg.Revision,
	}, from)
	return err
}

// sharedSource is a text of the shared file that other brokers have, beside this broker's own
// files.
type sharedSource struct {
	*Reloader
	text     []byte
	decide   func() error
	cfg      *config.Config
	warnings config.Diagnostics
	beside   *generation.Generation // what was in force when the own files were read
}

var _ source = (*sharedSource)(nil)

func (s *sharedSource) Config() *config.Config { return s.cfg }

// Fresh is false where the broker's own files have changed what is in force.
func (s *sharedSource) Fresh() bool { return s.beside == s.inForce() }

func (s *sharedSource) Renew() error {
	s.beside = s.inForce()
	path, _ := s.beside.Config.Shared()
	if path == "" {
		return sdk.Errorf(sdk.CodeConflict, "this broker shares no configuration any more")
	}
	cfg, diags := config.Load(s.beside.Config.Files()[0].Name, config.WithContent(path, s.text))
	if diags.HasErrors() {
		return diags
	}
	s.cfg, s.warnings = cfg, diags
	return nil
}

// Save implements source. That the file cannot be written keeps nothing from being in force: the
// brokers have decided, and the next start takes it from them.
func (s *sharedSource) Save() error {
	if err := s.decide(); err != nil {
		return err
	}
	path, before := s.beside.Config.Shared()
	if err := WriteShared(path, s.text, before); err != nil {
		s.Logger.Named("config").Warn("the file that the brokers share is not what is in force: it cannot be written", "file", path, "error", err)
	}
	return nil
}

func (s *sharedSource) takesTurns() bool { return false }

func (s *sharedSource) written() bool { return true }

func (s *sharedSource) committed() {
	s.tried = s.cfg.Revision
	if files, _ := s.Load(); files != nil {
		_, now := files.Shared()
		if !bytes.Equal(now, s.text) {
			s.tried = files.Revision // it could not be written, and is nobody's change
		}
	}
	s.saved = s.tried // drafts of before are made anew
	s.saves++
	s.watch(s.cfg)
	s.supersede(nil)
}

// WriteShared writes the text of the shared file. One that is there and is not as it was before,
// since somebody has edited it, is kept beside it.
func WriteShared(path string, text, before []byte) error {
	now, err := os.ReadFile(path)
	if err != nil || bytes.Equal(now, text) {
		return err
	}
	if !bytes.Equal(now, before) {
		if err := os.WriteFile(path+asideSuffix, now, 0o600); err != nil {
			return err
		}
	}
	return atomicfile.Replace(path, text, sha256.Sum256(now))
}

var _ agreement.Broker = (*Reloader)(nil)
