package main_test

import (
	"cmp"
	"net/http"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// What breaks the rules of gRPC, in the answer to any call, is the end of that call
// and of nothing else.
func TestAnAnswerThatIsNoAnswer(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newScene(t)
	for name, test := range map[string]struct {
		behaviour string
		// What a request for an execution comes to, when Create behaves so and
		// when Execute does; "" for success.
		create, execute string
	}{
		"an answer without a status":              {"no_status", "SB000", "SB000"},
		"a page of the web":                       {"web_page", "SB000", "SB000"},
		"an error of a web server":                {"http_500", "SB000", "SB000"},
		"bytes that are no message":               {"garbage", "SB000", "SB000"},
		"a text that is no UTF-8":                 {"not_utf8", "SB000", "SB000"},
		"a message of 4 GiB that never comes":     {"length_4g", "SB000", "SB000"},
		"a message of 4 GiB that ends at once":    {"length_4g_and_end", "SB000", "SB000"},
		"half a message":                          {"half", "SB000", "SB000"},
		"a message of 40 MiB":                     {"too_large", "SB000", "SB000"},
		"3 MiB of a field that nobody knows":      {"large", "SB000", "SB000"},
		"64 MiB in a small archive":               {"zipped", "SB000", "SB000"},
		"flags that there are not":                {"odd_flags", "SB000", "SB000"},
		"8 MiB of headers":                        {"headers", "SB009", "SB009"},
		"a stream that is reset":                  {"reset", "SB000", "SB000"},
		"a connection that is closed":             {"close", "SB009", "SB009"},
		"bytes that are no HTTP/2":                {"break", "SB009", "SB009"},
		"two answers":                             {"two_answers", "SB000", "SB000"},
		"success without an answer":               {"success_of_nothing", "SB000", "SB000"},
		"no answer":                               {"hang", "SB004", "SB009"},
		"an answer that comes too late":           {"late", "SB004", "SB009"},
		"an error that would forge a log":         {"error_text", "SB000", "SB000"},
		"a coded error that would do so":          {"error_detail", "SB009", "SB009"},
		"a code that there is not":                {"error_code_of_tomorrow", "SB000", "SB000"},
		"details of an error that are none":       {"error_malformed", "SB000", "SB000"},
		"details that are not encoded":            {"error_no_base64", "SB000", "SB000"},
		"a status that is too large a number":     {"error_status_huge", "SB000", "SB000"},
		"a status that is a word":                 {"error_status_word", "SB000", "SB000"},
		"an error of 12 MiB":                      {"error_text_huge", "SB009 or, on a slow machine, SB004", "SB009"},
		"five million details":                    {"error_details_many", "SB009 or, on a slow machine, SB004", "SB009"},
		"details that are longer than they are":   {"error_details_nested", "SB000", "SB000"},
		"the word that it is not there":           {"unavailable", "SB009", "SB009"},
		"the word that the caller gave up":        {"canceled", "SB004", "SB009"},
		"the word that the time is over":          {"deadline", "SB004", "SB009"},
		"the word that it cannot do that":         {"not_there", "SB015", "SB015"},
		"the word that there is too much":         {"exhausted", "SB000", "SB000"},
		"a log of wrong types":                    {"log_types", "", ""},
		"output that looks like another greeting": {"print", "", ""},
		"a child outside of its group that stays": {"orphan", "", ""},
		"a gigabyte of log in small lines":        {"log_lines", "", ""},
		"a gigabyte of log in one line":           {"log_endless", "", ""},
	} {
		for call, code := range map[string]string{"Create": test.create, "Execute": test.execute} {
			t.Run(call+": "+name, func(t *testing.T) {
				s.t = t
				s.plan(plan{call: test.behaviour})
				answer := s.execute()
				if code == "" {
					assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
				} else {
					blames(t, answer, code)
				}
				s.plan(nil)
				s.awaitHostile(t)
				s.unharmed(t)
				if test.behaviour == "orphan" {
					endOfChild(t, s)
				}
			})
		}
	}
}

// A million pings are no answer, but no harm either.
func TestPingsWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.plan(plan{"Execute": "pings"})
	answer := s.execute()
	if answer.Status != http.StatusOK {
		blames(t, answer, "SB009")
	}
	s.plan(nil)
	s.awaitHostile(t)
	s.unharmed(t)
}

func TestExecutionsThatLie(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for name, test := range map[string]struct {
		behaviour string
		// timeout of the execution, in seconds; 0 for that of the other tests.
		timeout float64
		// code of the refusal, or a part of the answer.
		code, answer string
	}{
		"output without end":                    {behaviour: "output_endless", code: "SB000"},
		"output without end in single bytes":    {behaviour: "output_crumbs", code: "SB000|SB009"}, // the limit or the time, whichever is first
		"output without end that is empty":      {behaviour: "output_nothing", code: "SB000"},
		"output in pieces just below the limit": {behaviour: "output_pieces", code: "SB000"},
		"events without end that nobody knows":  {behaviour: "events_unknown", code: "SB000"},
		"artifacts that nobody asked for":       {behaviour: "artifacts_unasked", code: "SB000"},
		"an end without a result":               {behaviour: "never_a_result", code: "SB000"},
		"a status that there is not":            {behaviour: "result_status", code: "SB000"},
		"a result above the limit":              {behaviour: "result_huge", code: "SB000"},
		"a result that is no JSON":              {behaviour: "result_no_json", code: "SB000"},
		"a result of half a million levels":     {behaviour: "result_deep", code: "SB000"},
		"a duration of 300 billion years":       {behaviour: "result_duration", code: "SB000"},
		"400,000 empty findings":                {behaviour: "result_findings", code: "SB000"},
		"two results":                           {behaviour: "two_results", code: "SB000"},
		"output after the result":               {behaviour: "result_then_output", code: "SB000"},
		"an error after the result":             {behaviour: "result_then_error", code: "SB000"},
		"a lost connection after the result":    {behaviour: "result_then_close", code: "SB009"},
		// The caller's time is longer than the broker's patience with the plugin. An
		// execution whose time ends first has its result, which the plugin had sent.
		"no end after the result":                 {behaviour: "result_then_nothing", timeout: 60, code: "SB000"},
		"a success that exits with 5":             {behaviour: "succeeded_with_5", code: "SB000"},
		"a failure that exits with 0":             {behaviour: "failed_with_0", code: "SB000"},
		"an exit code below zero":                 {behaviour: "exit_code_minus_1", code: "SB000"},
		"an exit code that no process has":        {behaviour: "exit_code_256", code: "SB000"},
		"numbers below zero, which count as zero": {behaviour: "result_negative", answer: `"execution_time":0`},
		"texts that would steer a terminal":       {behaviour: "result_texts", answer: `"status":"succeeded"`},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.plan(plan{"Execute": test.behaviour})
			answer := s.executeWithin(cmp.Or(test.timeout, timeout))
			if test.code != "" {
				blames(t, answer, test.code)
			} else {
				assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
				assert.Check(t, is.Contains(string(answer.Body), test.answer))
				harmless(t, string(answer.Body))
			}
			s.plan(nil)
			s.awaitHostile(t)
			s.unharmed(t)
		})
	}
}

func TestInstancesThatAreNotWhatTheyShouldBe(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for name, behaviour := range map[string]string{
		"an ID of control characters":           "create_control",
		"an ID of a megabyte":                   "create_long",
		"an ID that is a path":                  "create_path",
		"no instance at all":                    "create_nothing",
		"250,000 empty facts about an instance": "create_crowd",
		"a template of a megabyte":              "create_template",
		"an instance that ended in 1970":        "create_past",
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.plan(plan{"Create": behaviour})
			blames(t, s.create(harness.Token), "SB000")
			s.plan(nil)
			s.awaitHostile(t)
			s.unharmed(t)
		})
	}
	t.Run("times that nobody can write down", func(t *testing.T) {
		s.plan(plan{"Create": "create_times"})
		id := s.instance(t)
		s.plan(nil)
		assert.Equal(t, s.call(http.MethodGet, "/api/v1/instances/"+id).Status, http.StatusOK)
		assert.Equal(t, s.call(http.MethodDelete, "/api/v1/instances/"+id).Status, http.StatusNoContent)
	})
}

// executeIn runs something in an instance and returns which one the plugin was asked
// for.
func (s *scene) executeIn(t *testing.T, id string) string {
	t.Helper()
	answer := s.Do(http.MethodPost, "/api/v1/instances/"+id+"/execute", harness.Token, map[string]any{"language": "mock", "code": "hello"})
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	var e harness.Execution
	answer.Into(t, &e)
	name, _, _ := strings.Cut(e.Stdout, " ")
	return name
}

func TestAnInstanceOfSomebodyElseIsNotGivenOut(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	mine := s.instance(t)
	inside := s.executeIn(t, mine)
	s.plan(plan{"Create": "create_same"})
	blames(t, s.create(harness.OtherToken), "SB000")
	blames(t, s.create(harness.Token), "SB000")
	s.plan(nil)
	assert.Equal(t, s.executeIn(t, mine), inside, "it was not destroyed for that")
	s.unharmed(t)
}

func TestIDsThatBeginOtherIDsAreToldApart(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.plan(plan{"Create": "create_prefix"})
	first, second, third := s.instance(t), s.instance(t), s.instance(t)
	names := map[string]bool{}
	for _, id := range []string{first, second, third} {
		names[s.executeIn(t, id)] = true
	}
	assert.Equal(t, len(names), 3)
	assert.Equal(t, s.call(http.MethodDelete, "/api/v1/instances/"+first).Status, http.StatusNoContent)
	assert.Check(t, s.executeIn(t, second) != s.executeIn(t, third))
	s.unharmed(t)
}

// The plugin says that it can do much, and can do nothing of it.
func TestCapabilitiesThatAreNotThere(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	id := s.instance(t)
	below := "/api/v1/instances/" + id
	for name, test := range map[string]struct {
		method, path string
		body         any
	}{
		"listing files":      {http.MethodGet, "/files?path=/workspace", nil},
		"listing commands":   {http.MethodGet, "/commands", nil},
		"listing contexts":   {http.MethodGet, "/contexts", nil},
		"measuring":          {http.MethodGet, "/metrics", nil},
		"pausing":            {http.MethodPost, "/pause", nil},
		"reaching a port":    {http.MethodGet, "/ports/80/", nil},
		"installing package": {http.MethodPost, "/execute", map[string]any{"language": "mock", "code": "x", "requirements": []string{"x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			blames(t, s.Do(test.method, below+test.path, harness.Token, test.body), "SB015")
		})
	}
	for name, test := range map[string]struct {
		call, behaviour, path, code string
	}{
		"a list of files that is empty without end": {"ListFiles", "files_empty", "/files?path=/workspace", "SB000"},
		"a list of files without end":               {"ListFiles", "files_endless", "/files?path=/workspace", "SB000"},
		"a list of files that is garbage":           {"ListFiles", "garbage", "/files?path=/workspace", "SB000"},
		"a command in a state that there is not":    {"ListCommands", "commands_odd", "/commands", "SB000"},
		"a measure that is no number":               {"InstanceMetrics", "metrics_nan", "/metrics", "SB000"},
		"contexts of 4 GiB":                         {"ListContexts", "length_4g", "/contexts", "SB000"},
		"a plugin that dies of a measure":           {"InstanceMetrics", "killed", "/metrics", "SB009"},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.plan(plan{test.call: test.behaviour})
			blames(t, s.call(http.MethodGet, below+test.path), test.code)
			s.plan(nil)
			s.awaitHostile(t)
			s.unharmed(t)
			below = "/api/v1/instances/" + s.instance(t)
		})
	}
	s.plan(plan{"InstanceMetrics": "metrics_negative"})
	answer := s.call(http.MethodGet, below+"/metrics")
	assert.Equal(t, answer.Status, http.StatusOK)
	assert.Check(t, !strings.Contains(string(answer.Body), "-"+"5"), "%s", answer.Body)
}

// What go-plugin has beside the calls.
func TestStreamsOfGoPlugin(t *testing.T) {
	t.Parallel()
	for name, planned := range map[string]plan{
		"standard output over gRPC without end":     {"StreamStdio": "stdio_endless"},
		"standard output of a channel that is none": {"StreamStdio": "stdio_channel"},
		"standard output of 4 GiB":                  {"StreamStdio": "length_4g"},
		"standard output of 40 MiB":                 {"StreamStdio": "too_large"},
		"further connections without end":           {"StartStream": "further_connections"},
		"all streams reset":                         {"StreamStdio": "reset", "StartStream": "reset"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.plan(planned)
			before := s.Plugin("hostile")
			s.kill(t)
			s.awaitHostile(t)
			s.unharmed(t)
			s.unharmed(t)
			assert.Check(t, s.Plugin("hostile") != before)
		})
	}
}

// What one call may cost, many calls cost at once.
func TestManyHostileAnswersAtOnce(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := newScene(t)
	// What ten have left behind is there until the garbage collector finds the time.
	s.memory = harness.WatchMemory(t, 2*memory, map[string]int{"broker": s.PID})
	for name, planned := range map[string]plan{
		"instances of 3 MiB":            {"Create": "large"},
		"instances of 40 MiB":           {"Create": "too_large"},
		"instances with empty facts":    {"Create": "create_crowd"},
		"results of 3 MiB":              {"Execute": "large"},
		"results with empty findings":   {"Execute": "result_findings"},
		"output without end":            {"Execute": "output_endless"},
		"errors with 5 million details": {"Execute": "error_details_many"},
		"errors that would forge a log": {"Execute": "error_detail"},
		"executions without end":        {"Execute": "output_nothing"},
		"a death that ten wait for":     {"Execute": "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.plan(planned)
			var asking sync.WaitGroup
			for range 10 {
				asking.Go(func() {
					if answer := s.execute(); answer.Status == http.StatusOK {
						t.Errorf("%s", answer.Body)
					} else {
						blames(t, answer, "SB000 SB004 SB009")
					}
				})
			}
			asking.Wait()
			s.plan(nil)
			s.awaitHostile(t)
			s.unharmed(t)
		})
	}
}
