// Package readablelog makes a logger write lengths of time with their unit. In JSON
// hclog writes them as bare numbers of nanoseconds, which nobody can tell from a count.
//
// It changes nothing else of what is logged; where lines go is for their logger to say.
package readablelog

import (
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
)

// New returns a logger that writes to another one, with each time.Duration among the
// arguments as text such as "1.5s".
func New(to hclog.Logger) hclog.Logger { return logger{to} }

type logger struct{ hclog.Logger }

var _ hclog.Logger = logger{}

// withUnits returns the arguments of a line as they are to be written.
func withUnits(args []any) []any {
	if !slices.ContainsFunc(args, isDuration) {
		return args
	}
	written := slices.Clone(args)
	for i, arg := range written {
		if d, ok := arg.(time.Duration); ok {
			written[i] = d.String()
		}
	}
	return written
}

func isDuration(arg any) bool {
	_, ok := arg.(time.Duration)
	return ok
}

// Log implements hclog.Logger, as do the methods that follow.
func (l logger) Log(level hclog.Level, msg string, args ...any) {
	l.Logger.Log(level, msg, withUnits(args)...)
}
func (l logger) Trace(msg string, args ...any) { l.Logger.Trace(msg, withUnits(args)...) }
func (l logger) Debug(msg string, args ...any) { l.Logger.Debug(msg, withUnits(args)...) }
func (l logger) Info(msg string, args ...any)  { l.Logger.Info(msg, withUnits(args)...) }
func (l logger) Warn(msg string, args ...any)  { l.Logger.Warn(msg, withUnits(args)...) }
func (l logger) Error(msg string, args ...any) { l.Logger.Error(msg, withUnits(args)...) }

func (l logger) With(args ...any) hclog.Logger  { return New(l.Logger.With(withUnits(args)...)) }
func (l logger) Named(name string) hclog.Logger { return New(l.Logger.Named(name)) }

func (l logger) ResetNamed(name string) hclog.Logger { return New(l.Logger.ResetNamed(name)) }
