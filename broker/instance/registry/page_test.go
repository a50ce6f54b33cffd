package registry_test

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
)

// section names the generated section of docs/architecture.md.
const section = "go test ./broker/instance/registry -run Page -update"

func TestThePageOfTheArchitectureHasTheTableOfStates(t *testing.T) {
	page, err := markdown.Read("../../../docs/architecture.md")
	assert.NilError(t, err)
	text, err := page.WithGenerated(section, tableOfStates())
	assert.NilError(t, err)
	golden.Assert(t, text, "../../../../docs/architecture.md")
}

// allStates are the states in the order of the table.
func allStates() (all []registry.State) {
	for s := registry.Unknown; s <= registry.Gone; s++ {
		all = append(all, s)
	}
	return all
}

// allEvents are the events in their order.
func allEvents() (all []registry.Event) {
	for e := registry.Adopted; e <= registry.Vanished; e++ {
		all = append(all, e)
	}
	return all
}

// tableOfStates has a row for each transition. What a transition writes down and whom it
// tells is the work of the registry's owner, so that it stands here beside the table.
func tableOfStates() string {
	var b strings.Builder
	b.WriteString("| State | Event | Next | Journal | Who is told |\n| --- | --- | --- | --- | --- |\n")
	for _, state := range allStates() {
		for _, event := range allEvents() {
			if next, err := registry.Next(state, event); err == nil {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", state, event, next, written(state, event), told(state, event))
			}
		}
	}
	return b.String()
}

// written is what the journal is told of a transition.
func written(state registry.State, event registry.Event) string {
	switch event {
	case registry.Adopted, registry.AdoptedPaused:
		return "the record, as it is now"
	case registry.Retried:
		return "the intent, again, before the provider is asked"
	case registry.Detach:
		return "that it ends, before the session's next one is begun"
	case registry.Made, registry.Found:
		return "the record, before anybody is told"
	case registry.Failed:
		return "the end"
	case registry.PauseBegun:
		return "that it is paused, before the provider is asked"
	case registry.PauseFailed:
		return "that it runs"
	case registry.ResumeDone:
		return "that it is so, before the answer"
	case registry.Terminate, registry.Unwanted:
		return "that it ends, if the destruction does not work"
	case registry.TenantRemoved:
		if state == registry.Unknown {
			return "that it ends"
		}
		return ""
	case registry.Vanished:
		if state == registry.Terminating {
			return "the end, before, if it was confirmed"
		}
		return "the end"
	default:
		return ""
	}
}

// told is who learns of a transition. Nobody waits for a creation that is detached.
func told(state registry.State, event registry.Event) string {
	const asked = "the owner who asks for it: it has ended, and why"
	switch event {
	case registry.Detach:
		return "who waits: it turns to another provider"
	case registry.Recorded:
		return "who waits: here it is"
	case registry.Unclear:
		if state == registry.Pending {
			return "who waits and has no other provider to ask: the failure"
		}
	case registry.Unwanted:
		if state == registry.Recording {
			return "who waits: the failure, if there is one"
		}
	case registry.PauseBegun:
		return "its executions, if its time is over"
	case registry.PauseDone, registry.PauseFailed, registry.ResumeDone, registry.ResumeFailed:
		return "who asked for it"
	case registry.Drain:
		return asked
	case registry.Terminate:
		if state.Visible() {
			return "its executions, if somebody destroyed it or its end is fixed; " + asked
		}
	case registry.TenantRemoved:
		switch {
		case state.Visible(), state == registry.Draining:
			return "its executions"
		case state == registry.Pending, state == registry.Ambiguous, state == registry.Recording:
			return "who waits: it is refused"
		}
	case registry.Failed, registry.Vanished:
		switch {
		case state.Creating() && !state.Detached(), state == registry.Ambiguous:
			return "who waits: the failure"
		case state.Decided(), state == registry.Unknown:
			return asked
		}
	}
	return ""
}
