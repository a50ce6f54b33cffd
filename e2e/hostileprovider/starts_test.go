package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// badStarts are what a plugin can do instead of serving, and what is said of it.
var badStarts = map[string]struct {
	plan   plan
	reason string
}{
	"garbage on stdout":                     {plan{"start": "garbage"}, "only a unix socket|printed something else before its handshake|outside the directory"},
	"one line without end on stdout":        {plan{"start": "endless_line"}, "printed something else before its handshake"},
	"not a word":                            {plan{"start": "silent"}, "did not answer within 10s"},
	"not a word, and deaf":                  {plan{"start": "silent_deaf"}, "did not answer within 10s"},
	"an exit":                               {plan{"start": "exit"}, "exited with status 3 before its handshake"},
	"a death by SIGKILL":                    {plan{"start": "killed"}, "was killed by signal SIGKILL before its handshake"},
	"a stop by SIGSTOP":                     {plan{"start": "stopped"}, "did not answer within 10s"},
	"a panic":                               {plan{"start": "panic"}, "exited with status 2 before its handshake"},
	"the protocol of yesterday":             {plan{"start": "old_protocol"}, "speaks protocol version 7, this broker version 1"},
	"the handshake of tomorrow":             {plan{"start": "old_core"}, "speaks version 9 of the go-plugin handshake"},
	"a protocol below zero":                 {plan{"start": "numbers"}, "speaks protocol version -1"},
	"another protocol than gRPC":            {plan{"start": "net_rpc"}, "does not speak gRPC"},
	"an address of TCP":                     {plan{"start": "tcp"}, "only a unix socket is accepted"},
	"a socket elsewhere":                    {plan{"start": "elsewhere"}, "named a socket outside the directory"},
	"a socket above":                        {plan{"start": "above"}, "named a socket outside the directory"},
	"a socket that is not there":            {plan{"start": "no_socket"}, "named a socket that does not exist"},
	"a socket that is a link to elsewhere":  {plan{"start": "link"}, "named a socket that does not exist"},
	"a certificate":                         {plan{"start": "certificate"}, "wants TLS"},
	"a socket that says nothing":            {plan{"start": "mute"}, "did not answer within 10s"},
	"a socket that babbles":                 {plan{"start": "babble"}, "did not answer within 10s|could not describe itself|before it had described itself"},
	"a greeting that comes too late":        {plan{"start": "late_greeting"}, "did not answer within 10s"},
	"no description":                        {plan{"Describe": "hang"}, "did not answer within 10s"},
	"an exit when it is asked what it is":   {plan{"Describe": "exit"}, "exited with status 3 before it had described itself"},
	"a panic when it is asked what it is":   {plan{"Describe": "panic"}, "exited with status 2 before it had described itself"},
	"a stop when it is asked what it is":    {plan{"Describe": "stopped"}, "did not answer within 10s"},
	"a description of 4 GiB":                {plan{"Describe": "length_4g"}, "could not describe itself"},
	"a description of 3 MiB":                {plan{"Describe": "large"}, "could not describe itself"},
	"a description that is an error":        {plan{"Describe": "error_detail"}, "could not describe itself"},
	"a schema of 100,000 fields":            {plan{"Describe": "describe_fields"}, "could not describe itself"},
	"a schema with every field twice":       {plan{"Describe": "describe_twice"}, "is declared twice"},
	"patterns that grow when they are read": {plan{"Describe": "describe_patterns"}, "too large once its repetitions are written out"},
	"a default of 5,000 levels":             {plan{"Describe": "describe_nesting"}, "could not describe itself"},
	"a default that is no number":           {plan{"Describe": "describe_numbers"}, "default must be a whole number"},
	"a version that would steer a terminal": {plan{"Describe": "describe_texts"}, "more than one line of printable text"},
	"a template described in a megabyte":    {plan{"Describe": "describe_template"}, "the description is more than one line"},
	"900,000 languages without a name":      {plan{"Describe": "describe_crowd"}, "could not describe itself"},
	"a field that is the broker's":          {plan{"Describe": "describe_reserved"}, "reserved for the broker"},
}

// A plugin that does not start as it should is a mistake in the configuration: the
// broker says which plugin, and why, and does not start.
func TestABrokerDoesNotStartWithAHostilePlugin(t *testing.T) {
	t.Parallel()
	for name, test := range badStarts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := harness.Refusal(t, options(test.plan))
			assert.Check(t, is.Contains(log, `provider "hostile"`))
			assert.Check(t, oneOf(log, test.reason), "%s", log)
			assert.Check(t, len(log) < 300<<10, "the log has %d bytes", len(log))
			harmless(t, log)
		})
	}
}

func oneOf(text, reasons string) bool {
	for reason := range strings.SplitSeq(reasons, "|") {
		if strings.Contains(text, reason) {
			return true
		}
	}
	return false
}

// A plugin that was well can become hostile when it is started again.
func TestARestartThatGoesWrong(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		plan   plan
		reason string
	}{
		"an exit in Configure":              {plan{"Configure": "exit"}, "the plugin ended"},
		"a panic in Configure":              {plan{"Configure": "panic"}, "the plugin ended"},
		"garbage from Configure":            {plan{"Configure": "garbage"}, "failed to unmarshal|Internal"},
		"instances without end":             {plan{"List": "list_crowd"}, "too many fields|too large"},
		"50,000 instances":                  {plan{"List": "list_many"}, "listed more than is acceptable"},
		"an instance twice":                 {plan{"List": "list_twice"}, "twice"},
		"an instance with an impossible ID": {plan{"List": "list_bad_id"}, "which is not of the form"},
		"a list of 4 GiB":                   {plan{"List": "length_4g"}, "too large"},
		"a list that is an error":           {plan{"List": "error_detail"}, "bad"},
		"a death in List":                   {plan{"List": "killed"}, "the plugin ended"},
	}
	// Those that take memory or time; each costs half a minute, until the broker
	// tries again.
	for _, name := range []string{
		"one line without end on stdout", "not a word", "a panic", "a certificate", "a socket that babbles",
		"a description of 4 GiB", "a description of 3 MiB", "a schema of 100,000 fields", "patterns that grow when they are read",
		"a default of 5,000 levels", "900,000 languages without a name",
	} {
		tests["at the start: "+name] = badStarts[name]
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.plan(test.plan)
			s.kill(t)
			// Whoever asks meanwhile is told whose fault it is.
			blames(t, untilRefused(t, s), "SB009")
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if !oneOf(s.Log(), test.reason) {
					return poll.Continue("%s is not in the log", test.reason)
				}
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute))
			blames(t, s.execute(), "SB009")
			s.unharmed(t)
			s.plan(nil)
			s.awaitHostile(t)
			s.unharmed(t)
		})
	}
}

// untilRefused asks until the provider, which may not have died yet, refuses.
func untilRefused(t *testing.T, s *scene) harness.Answer {
	t.Helper()
	for range 100 {
		if answer := s.execute(); answer.Status != http.StatusOK {
			return answer
		}
	}
	t.Fatal("the hostile provider goes on to serve")
	return harness.Answer{}
}

func TestWhatAListSaysOfInstances(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]string{
		"one without those that there are is believed":   "list_nothing",
		"one with other people's labels gives no access": "list_strangers",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			id := s.instance(t)
			s.plan(plan{"List": list})
			s.kill(t)
			s.awaitHostile(t)
			harness.Refused(t, s.call(http.MethodGet, "/api/v1/instances/"+id), http.StatusNotFound, "SB013")
			s.unharmed(t)
		})
	}
}

// childLives says whether the process that the plugin left behind is there.
func childLives(t *testing.T, s *scene) bool {
	t.Helper()
	pid := child(t, s)
	return slices.ContainsFunc(harness.Processes(t), func(p harness.Process) bool {
		return p.PID == pid && strings.Contains(p.Command, "sleep 600")
	})
}

// endOfChild ends the plugin, and with it what it left behind in another session.
func endOfChild(t *testing.T, s *scene) {
	t.Helper()
	assert.Check(t, childLives(t, s), "it ends with the plugin, not before")
	s.kill(t)
	s.awaitHostile(t)
	assert.Check(t, !childLives(t, s), "a process of another session outlives the plugin")
}

func child(t *testing.T, s *scene) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir, "bin", "plugins", "hostile.child"))
	assert.NilError(t, err)
	pid, err := strconv.Atoi(string(text))
	assert.NilError(t, err)
	return pid
}
