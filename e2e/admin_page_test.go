package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// wouldChange expects a dry run, and returns what it says.
func wouldChange(t *testing.T, answer harness.Answer) (reload reloaded, difference string) {
	t.Helper()
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	var c struct {
		Reload     reloaded
		Difference string
	}
	answer.Into(t, &c)
	return c.Reload, c.Difference
}

func TestAChangeIsSeenBeforeItIsMadeAndTakenBackAfterwards(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	before := fileOf(t, b)
	settings := map[string]any{"provider_type": "mock", "config": map[string]any{"persist": true, "secret": "hunter2-and-more"}}
	settings["dry_run"] = true
	dry := change(t, b, http.MethodPost, "/config", "", settings)
	reload, difference := wouldChange(t, dry)
	assert.Equal(t, reload.Result, "would_apply")
	assert.Check(t, is.Contains(difference, "\n-  persist = false # for now\n"))
	assert.Check(t, is.Contains(difference, "\n+  persist = true # for now\n"))
	assert.Check(t, is.Contains(difference, "\n-  secret = \"****hand\"\n"))
	assert.Check(t, !strings.Contains(difference, "hunter2") && !strings.Contains(difference, "written-by"))
	assert.Equal(t, fileOf(t, b), before)
	assert.Equal(t, configOf(t, b).Meta.Generation, 1)

	delete(settings, "dry_run")
	changed(t, change(t, b, http.MethodPost, "/config", dry.Header.Get("ETag"), settings))
	assert.Assert(t, fileOf(t, b) != before)
	var list struct {
		Data []struct {
			Generation int
			Restorable bool
		}
	}
	b.Do(http.MethodGet, adminAPI+"/generations", adminToken, nil).Into(t, &list)
	assert.Assert(t, is.Len(list.Data, 2))
	assert.Check(t, list.Data[0].Restorable && list.Data[1].Restorable)

	_, difference = wouldChange(t, change(t, b, http.MethodPost, "/generations/1/restore", "", map[string]any{"dry_run": true}))
	assert.Check(t, is.Contains(difference, "\n+  persist = false # for now\n"))
	harness.Refused(t, change(t, b, http.MethodPost, "/generations/1/restore", `"x"`, map[string]any{}), http.StatusConflict, "SB014")
	harness.Refused(t, change(t, b, http.MethodPost, "/generations/17/restore", "", map[string]any{}), http.StatusNotFound, "SB013")
	back := changed(t, change(t, b, http.MethodPost, "/generations/1/restore", configOf(t, b).etag, map[string]any{}))
	assert.Equal(t, back.Operation, "restore")
	assert.Equal(t, back.Generation, 3)
	assert.Equal(t, fileOf(t, b), before)
}

// Files that were refused are no generation, and what was before them comes back.
func TestRefusedFilesAreUndoneByARestore(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	changed(t, change(t, b, http.MethodPost, "/config", "", map[string]any{"provider_type": "mock", "config": map[string]any{"persist": true}}))
	rewrite(t, b, func(text string) string { return strings.Replace(text, "persist = true", "bad_starts = \"x\"", 1) })
	awaitLog(t, b, refused, 1)
	by := fileOf(t, b)
	harness.Refused(t, change(t, b, http.MethodPost, "/generations/3/restore", "", map[string]any{}), http.StatusNotFound, "SB013")
	assert.Equal(t, fileOf(t, b), by)
	changed(t, change(t, b, http.MethodPost, "/generations/2/restore", "", map[string]any{}))
	assert.Check(t, is.Contains(fileOf(t, b), "persist = true"))
}

func TestWhatAPageForAdministratorsShows(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	const hostile = "s<script>alert(1)</script>\u2028"
	for i := range 3 {
		b.Execute(t, map[string]any{"language": "python", "code": fmt.Sprint(i)})
	}
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "python", "code": "1", "session_id": hostile}), http.StatusUnprocessableEntity, "SB010")

	var usage struct {
		Data []struct {
			Tenant string
			Limits []struct {
				Name string
				Used float64
			}
		}
	}
	b.Do(http.MethodGet, adminAPI+"/usage", adminToken, nil).Into(t, &usage)
	assert.Assert(t, len(usage.Data) > 0)
	used := 0.0
	for _, tenant := range usage.Data {
		for _, line := range tenant.Limits {
			if line.Name == "executions_per_day" {
				used += line.Used
			}
		}
	}
	assert.Equal(t, used, 3.0)

	var log struct {
		Data  []map[string]any
		Next  string
		Chain struct{ State, Detail string }
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		b.Do(http.MethodGet, adminAPI+"/audit?operation=execute_code&outcome=succeeded&limit=2", adminToken, nil).Into(t, &log)
		return poll.Compare(is.Equal(log.Chain.State, "whole"))
	}, poll.WithTimeout(2*time.Minute))
	assert.Assert(t, is.Len(log.Data, 2))
	assert.Check(t, log.Next != "")
	b.Do(http.MethodGet, adminAPI+"/audit?operation=execute_code&outcome=succeeded&limit=2&before="+log.Next, adminToken, nil).Into(t, &log)
	assert.Check(t, is.Len(log.Data, 1))

	var history struct {
		Series []struct {
			Name   string
			Points []*float64
		}
	}
	names := map[string]bool{}
	answer := b.Do(http.MethodGet, adminAPI+"/history?minutes=1", adminToken, nil)
	answer.Into(t, &history)
	for _, s := range history.Series {
		names[s.Name] = true
		assert.Check(t, is.Len(s.Points, 6))
	}
	assert.Check(t, names["instances"] && names["latency_p50"] && names["waiting"], "%s", answer.Body)
	assert.Check(t, json.Valid(answer.Body))
}
