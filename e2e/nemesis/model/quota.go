package model

import (
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// tenant is what one tenant has.
type tenant struct {
	// live are the instances that count, in order, each with a semicolon behind it.
	live string
	// loose is how many more there may be, of which nobody knows whether they count.
	loose int
}

func (s tenant) has() []string {
	return strings.FieldsFunc(s.live, func(r rune) bool { return r == ';' })
}

func (s tenant) with(ids []string) tenant {
	slices.Sort(ids)
	s.live = ""
	for _, id := range ids {
		s.live += id + ";"
	}
	return s
}

func (s tenant) without(id string) (tenant, bool) {
	ids := s.has()
	at := slices.Index(ids, id)
	if at < 0 {
		return s, false
	}
	return s.with(slices.Delete(ids, at, at+1)), true
}

// Quota checks the history of all creations and destructions of a tenant that may have so many
// instances: never is there one too many, and nobody is refused while there is room. A creation
// that is refused in the end holds a place until then.
func (t Truth) Quota(h History, most int, timeout time.Duration) porcupine.CheckResult {
	return t.check(porcupine.NondeterministicModel{
		Init: func() []any { return []any{tenant{}} },
		Step: func(state, in, _ any) []any { return t.stepQuota(state.(tenant), in.(input), most) },
	}, h, timeout)
}

func (t Truth) stepQuota(s tenant, in input, most int) []any {
	more := tenant{live: s.live, loose: s.loose + 1}
	switch in.Kind {
	case Create:
		ids := s.has()
		switch {
		case in.Outcome == Unknown:
			return []any{s, more}
		case in.Outcome == Full && len(ids)+s.loose+in.rivals >= most:
			return []any{s}
		case in.Outcome == Done && len(ids) < most && !slices.Contains(ids, in.ID):
			return []any{s.with(append(ids, in.ID))}
		}
	case Destroy:
		left, had := s.without(in.ID)
		switch {
		case in.Outcome == Unknown && had:
			return []any{s, left, tenant{live: left.live, loose: left.loose + 1}}
		case in.Outcome == Done && had:
			return []any{left}
		case in.Outcome == Absent && had && !in.excused:
			return nil
		case s.loose > 0: // it may have been one of these
			return []any{s, tenant{live: s.live, loose: s.loose - 1}}
		}
		return []any{s}
	case Loss:
		lost := s
		for _, id := range s.has() {
			if t.Owners[id] == in.Broker {
				lost, _ = lost.without(id)
				lost.loose++
			}
		}
		if lost != s {
			return []any{s, lost}
		}
		return []any{s}
	}
	return nil
}
