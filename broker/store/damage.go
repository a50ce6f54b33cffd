package store

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// ErrDamaged is what errors.Is finds in every error that says that a state file cannot be used as
// it is.
var ErrDamaged = errors.New("the state file is damaged")

// damagedError puts a damage into words, with what to do. The reason follows.
func damagedError(path string, reason error) error {
	e := sdk.Errorf(sdk.CodeUnavailable, "%s is not a state file, or it is damaged (%w); stop the broker if it runs, then `sandbox-broker state check` shows what is left and `sandbox-broker state restore` starts from it; without both, move it away: instances in clouds are then destroyed and quotas begin anew", path, reason)
	return &damagedFile{e}
}

// damagedFile is an error that is ErrDamaged without saying so twice.
type damagedFile struct{ error }

func (e *damagedFile) Unwrap() error        { return e.error }
func (e *damagedFile) Is(target error) bool { return target == ErrDamaged }

// guarded runs what reads the mapped file. A fault of the machine there, or bbolt's own
// panic, comes back as broken: whoever cut or changed the file did that, and not the
// code. Other panics go on their way. A fault can leave locks of bbolt held, so the
// database must not be used any more after one.
func guarded(work func() error) (err, broken error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if broken = fileFault(r); broken == nil {
				panic(r)
			}
		}
	}()
	return work(), nil
}

// fileFault returns the damage of the file that a panic tells of, nil for another panic.
// It is called by the function that recovers it.
func fileFault(r any) error {
	var fault interface{ Addr() uintptr }
	if err, ok := r.(error); ok && errors.As(err, &fault) {
		return errors.New("a part of it is not there any more, or cannot be read")
	}
	if panickedIn("go.etcd.io/bbolt") {
		return fmt.Errorf("a page makes no sense: %v", r)
	}
	return nil
}

// panickedIn reports whether the panic that is being recovered was raised by a package
// with this prefix.
func panickedIn(prefix string) bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	panicking := false
	for {
		frame, more := frames.Next()
		switch inRuntime := strings.HasPrefix(frame.Function, "runtime."); {
		case frame.Function == "runtime.gopanic":
			panicking = true
		case panicking && !inRuntime:
			return strings.HasPrefix(frame.Function, prefix)
		}
		if !more {
			return false
		}
	}
}

// broke remembers that the file is damaged, and returns what everybody is told from then
// on.
func (s *Store) broke(reason error) error {
	cause := damagedError(s.path, reason)
	public := sdk.Errorf(sdk.CodeUnavailable, "the broker's state file was damaged while it ran; the operator finds in the broker's log what to do")
	err := fmt.Errorf("%w (%w)", public, cause)
	if s.damage.CompareAndSwap(nil, &err) {
		s.logger.Error("the state file cannot be used any more", "error", cause)
	}
	return *s.damage.Load()
}

// Err returns why the store can neither be read nor written any more: its file was damaged
// while it was open. nil as long as it can.
func (s *Store) Err() error {
	if err := s.damage.Load(); err != nil {
		return *err
	}
	return nil
}
