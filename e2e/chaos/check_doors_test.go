package chaos_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// lastPart of an instance's ID, which is the name that front doors give it.
func lastPart(id string) string { return id[strings.LastIndexByte(id, ':')+1:] }

// namesOf are the broker's names for the instances that were made, by those that front doors
// have for them.
func namesOf(effects []cloud.Effect) map[string]string {
	ids := map[string]string{}
	for _, e := range effects {
		if e.Kind == cloud.Created && e.Process != cloud.StrayProcess {
			ids[e.Instance.Labels[sdk.LabelInstance]] = idOf(e.Instance)
		}
	}
	return ids
}

// named returns the events with the broker's names for the instances of front doors, which are
// in ids by the doors' names. What a door has told of was made, by somebody.
func (f *findings) named(events []event, ids map[string]string) []event {
	named := slices.Clone(events)
	for i := range named {
		e := &named[i]
		if e.Door == "" {
			continue
		}
		if id, made := ids[e.Told]; made {
			e.Told = id
		} else if e.Told != "" {
			f.add("lost: %s told of %s, which was never made", e.Door, e.Told)
			e.Told = ""
		}
		if id, made := ids[e.Instance]; made {
			e.Instance = id
		}
		e.List = slices.Clone(e.List)
		for at, id := range e.List {
			if ids[id] != "" {
				e.List[at] = ids[id]
			}
		}
	}
	return named
}

// ofFiles are about files, whose tokens no code has.
var ofFiles = []operation{opWrite, opRead, opPut, opGet}

// outcomes are told as they were: what is said to have run has run, and what it printed is
// its own.
func (f *findings) outcomes(events []event, effects []cloud.Effect) {
	ran := map[string]bool{}
	for _, e := range effects {
		if e.Kind == cloud.Executed || e.Kind == cloud.Started || e.Kind == cloud.Typed {
			ran[e.Program.Token] = true
		}
	}
	for _, e := range events {
		if e.Token == "" || !e.acknowledged() || slices.Contains(ofFiles, e.Operation) {
			continue
		}
		if !ran[e.Token] {
			f.add("lost: %s was acknowledged at %s and has not run", e.Token, e.Ended.Format(time.RFC3339Nano))
		}
		switch e.Operation {
		case opExecute, opRun, opCommand, opFollow:
			if e.Printed != e.Token {
				f.add("mixed up: %s has printed %q, says the answer at %s", e.Token, e.Printed, e.Ended.Format(time.RFC3339Nano))
			}
		}
	}
}

// contents of files are what was written, whole, and there as long as the instance is.
func (f *findings) contents(events []event) {
	type place struct{ instance, path string }
	written, asked := map[place]bool{}, map[string]bool{}
	for _, e := range events {
		if e.Operation == opDestroy {
			asked[e.Instance] = true
		}
	}
	for _, e := range events {
		at := place{e.Instance, e.Path}
		switch {
		case e.Operation == opWrite && e.acknowledged():
			written[at] = true
		case e.Operation == opCreate && e.acknowledged() && e.Path != "":
			written[place{e.Told, e.Path}] = true
		case e.Operation == opRead && e.acknowledged() && e.Printed != e.Token:
			f.add("mixed up: %s of %s holds %q", e.Path, e.Instance, e.Printed)
		case e.Operation == opRead && e.Status == http.StatusNotFound && written[at] && !asked[e.Instance]:
			f.add("lost: %s of %s was written and is no more at %s: %s", e.Path, e.Instance, e.Ended.Format(time.RFC3339Nano), e.Detail)
		}
	}
}

// promises about an instance are kept: its end comes no earlier than was said, its ports
// are where they were and open to who could open them, and what was paused is paused. Each
// instance has one client that asks.
func (f *findings) promises(events []event) {
	type promise struct {
		way     string
		expires time.Time
		// paused is whether it is, if that is certain.
		paused, certain bool
		// naps is whether it is paused when it expires.
		naps bool
	}
	of := map[string]*promise{}
	for _, e := range events {
		id := e.Instance
		if e.Operation == opCreate {
			id = e.Told
		}
		if e.Door == "" || id == "" || e.Operation == opSteal {
			continue
		}
		p := of[id]
		if p == nil {
			p = &promise{}
			of[id] = p
		}
		if e.Operation == opPause || e.Operation == opResume {
			p.paused, p.certain = e.Operation == opPause, e.acknowledged()
		}
		if !e.acknowledged() {
			continue
		}
		if e.Way != "" {
			if p.way != "" && p.way != e.Way {
				f.add("mixed up: %s had the way %s and has %s", id, p.way, e.Way)
			}
			p.way = e.Way
		}
		p.naps = p.naps || e.Naps
		due := p.naps && e.Ended.After(p.expires) // it may be paused, or may be about to be
		if !e.Expires.IsZero() {
			if e.Expires.Before(p.expires) && !p.naps {
				f.add("lost: %s was to end at %s, and is to end at %s", id, p.expires, e.Expires)
			}
			p.expires = e.Expires
		}
		switch e.Operation {
		case opCreate:
			p.certain = true
		case opRenew:
			p.certain = p.certain && (p.paused || !due)
		case opLook:
			if p.certain && p.paused != e.Paused && (p.paused || !due) {
				f.add("mixed up: whether %s is paused was acknowledged as %t, and is %t at %s", id, p.paused, e.Paused, e.Ended.Format(time.RFC3339Nano))
			}
			// A pause at the end that does not work is tried again, and it runs meanwhile.
			p.certain = !e.Paused || !p.naps || p.certain && p.paused
			p.paused = e.Paused
		}
	}
}

// insideKey names an effect in an instance by what a line of the audit log says of it.
func insideKey(operation, instance, codeHash, path string) string {
	switch operation {
	case "run_command":
		return "start " + codeHash + " in " + instance
	case "write_file":
		return "write " + path + " in " + instance
	case "make_directory":
		return "make " + path + " in " + instance
	case "create_context", "pause_instance", "resume_instance":
		return operation + " " + instance
	default:
		return ""
	}
}

// keyInside names it by what the cloud says.
func keyInside(e cloud.Effect) string {
	operation, sum := "", ""
	switch e.Kind {
	case cloud.Started:
		operation, sum = "run_command", fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(strings.Join(e.Argv, "\x00"))))
	case cloud.Wrote:
		operation = "write_file"
	case cloud.Made:
		operation = "make_directory"
	case cloud.Prepared:
		operation = "create_context"
	case cloud.Paused:
		operation = "pause_instance"
	case cloud.Resumed:
		operation = "resume_instance"
	}
	return insideKey(operation, e.Instance.ID, sum, e.Path) + " in " + e.Cloud
}

// origins of effects are in the audit log: it says which front door's request each was
// for. Instances are those that somebody was told of.
func (f *findings) origins(events []event, effects []cloud.Effect, lines []auditLine) {
	doors := map[string]map[string]bool{} // by key
	for _, l := range lines {
		if l.Event != "begin" {
			continue
		}
		for _, key := range l.keys() {
			if doors[key] == nil {
				doors[key] = map[string]bool{}
			}
			doors[key][l.Door] = true
		}
	}
	through := map[string]string{} // by the token of code and the ID of an instance
	for _, e := range events {
		if e.Token != "" {
			through[e.Token] = e.Door
		}
		if e.Operation == opCreate && e.answered() && e.Told != "" {
			through[e.Told] = e.Door
		}
	}
	for _, e := range effects {
		key, what := "", ""
		switch e.Kind {
		case cloud.Created:
			key, what = "create "+idOf(e.Instance)+" in "+e.Cloud, idOf(e.Instance)
		case cloud.Executed:
			key, what = "execute "+e.Execution+" in "+e.Cloud, e.Program.Token
		case cloud.Started:
			key, what = keyInside(e), e.Program.Token
		default:
			continue
		}
		door, known := through[what]
		if known && len(doors[key]) > 0 && !doors[key][door] {
			f.add("mixed up: %s was asked for through %q, and the audit log has %v", key, door, doors[key])
		}
	}
}

// frozen are the instances that the clouds have paused.
func (w *world) frozen() map[string]bool {
	frozen := map[string]bool{}
	for _, b := range w.backends {
		for _, i := range b.alive(w.t) {
			if i.paused {
				frozen[idOf(i.Instance)] = true
			}
		}
	}
	for _, c := range w.clouds {
		ids := c.Frozen()
		for _, i := range c.Alive() {
			if slices.Contains(ids, i.ID) {
				frozen[idOf(i)] = true
			}
		}
	}
	return frozen
}
