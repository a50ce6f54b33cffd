package model

import (
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// somebody stands for the instance of a creation without an answer.
const somebody = "?"

// session is the register of one session.
type session struct {
	// current is its instance; "" for none.
	current string
	// gone are those that it had, each with a semicolon behind it. None of them comes back.
	gone string
}

func (s session) end() session {
	if s.current != "" && s.current != somebody {
		s.gone += s.current + ";"
	}
	s.current = ""
	return s
}

func (s session) had(id string) bool { return strings.Contains(s.gone, id+";") }

// Session checks the history of one session: at each moment it has one instance, or none, and
// who asks is told of that one.
func (t Truth) Session(h History, timeout time.Duration) porcupine.CheckResult {
	return t.check(porcupine.NondeterministicModel{
		Init: func() []any { return []any{session{}} },
		Step: func(state, in, _ any) []any {
			return t.stepSession(state.(session), in.(input))
		},
	}, h, timeout)
}

func (t Truth) stepSession(s session, in input) []any {
	is := s.current == in.ID || s.current == somebody && !s.had(in.ID) // what nobody has told of yet
	switch in.Kind {
	case Create:
		switch {
		case in.Outcome == Unknown && s.current == "":
			return []any{s, session{current: somebody, gone: s.gone}}
		case in.Outcome == Unknown:
			return []any{s}
		case is || s.current == "" && !s.had(in.ID):
			return []any{session{current: in.ID, gone: s.gone}}
		}
	case Look, Use:
		switch {
		case in.Kind == Look && in.Outcome == Done && in.excused && s.had(in.ID):
			return []any{s}
		case in.Outcome == Done && is:
			return []any{session{current: in.ID, gone: s.gone}}
		case in.Outcome == Absent && (s.current != in.ID || in.excused):
			return []any{s}
		}
	case Destroy:
		known := session{current: in.ID, gone: s.gone}
		switch {
		case in.Outcome == Unknown && is:
			return []any{s, known.end()}
		case in.Outcome == Unknown:
			return []any{s}
		case in.Outcome == Done && is:
			return []any{known.end()}
		case in.Outcome == Done && s.had(in.ID): // it is gone, as was asked for
			return []any{s}
		case in.Outcome == Absent && (s.current != in.ID || in.excused):
			return []any{s}
		}
	case Loss:
		if s.current == somebody || s.current != "" && t.Owners[s.current] == in.Broker {
			return []any{s, s.end()}
		}
		return []any{s}
	}
	return nil
}
