package broker_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"
)

const (
	// hanging is what a plugin never comes to an end of, slow what takes it a while, and
	// wrong what it refuses.
	hanging = `{"hang": true}`
	slow    = `{"delay": "2s"}`
	wrong   = `{"fail": "SB002", "message": "is wrong"}`
)

// beginning is a change of the provider that an administrator has asked for.
type beginning struct {
	answered chan struct{}
	status   int
	text     string
}

// begin asks for a change of the provider, and returns when its process is there.
func (a *administered) begin(configure string) *beginning {
	a.t.Helper()
	b := &beginning{answered: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(b.answered)
		b.status, b.text, _ = a.do(ctx, http.MethodPost, "/config", map[string]any{"provider": "mock", "config": map[string]any{"on_configure": configure}})
	}()
	a.t.Cleanup(func() {
		cancel()
		<-b.answered
	})
	a.awaitProcesses(2)
	return b
}

func (a *administered) awaitProcesses(n int) {
	a.t.Helper()
	poll.WaitOn(a.t, func(poll.LogT) poll.Result {
		dirs, err := a.directories()
		if err != nil {
			return poll.Error(err)
		}
		return poll.Compare(is.Len(dirs, n))
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
}

func (b *beginning) goesOn(t *testing.T) {
	t.Helper()
	select {
	case <-b.answered:
		t.Fatalf("it is over: %d %s", b.status, b.text)
	default:
	}
}

// must asks an administrator's question that is answered so.
func (a *administered) must(want int, method, path string, body map[string]any) string {
	a.t.Helper()
	status, text, err := a.do(a.t.Context(), method, path, body)
	assert.NilError(a.t, err)
	assert.Equal(a.t, status, want, text)
	return text
}

// tenant adds one and returns its token.
func (a *administered) tenant(name string) string {
	a.t.Helper()
	var made struct{ Token string }
	assert.NilError(a.t, json.Unmarshal([]byte(a.must(http.StatusCreated, http.MethodPost, "/tenants", map[string]any{"name": name})), &made))
	return made.Token
}

// lets reports whether a token lets somebody in.
func (a *administered) lets(token string) bool {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.url+"/api/v1/providers", nil)
	assert.NilError(a.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	assert.NilError(a.t, err)
	defer http.DefaultClient.CloseIdleConnections()
	assert.NilError(a.t, resp.Body.Close())
	return resp.StatusCode == http.StatusOK
}

// edit changes the file as an editor does.
func (a *administered) edit(change func(text string) string) {
	a.t.Helper()
	text, err := os.ReadFile(a.file)
	assert.NilError(a.t, err)
	assert.NilError(a.t, os.WriteFile(a.file+".new", []byte(change(string(text))), 0o600))
	assert.NilError(a.t, os.Rename(a.file+".new", a.file))
}

func configures(how string) func(string) string {
	return func(text string) string {
		return strings.Replace(text, "  persist = false\n", fmt.Sprintf("  persist = false\n  on_configure = %q\n", how), 1)
	}
}

// thirdTenant is a block of the file whose token is third-token.
func thirdTenant() string {
	sum := sha256.Sum256([]byte("third-token"))
	return fmt.Sprintf("tenant \"third\" { token_sha256 = [%q] }\n", hex.EncodeToString(sum[:]))
}

func without(block string) func(string) string {
	return func(text string) string { return strings.Replace(text, block, "", 1) }
}

// results are those of the last attempts, the newest first.
func (a *administered) results() []string {
	a.t.Helper()
	var shown struct{ Data []struct{ Result string } }
	assert.NilError(a.t, json.Unmarshal([]byte(a.must(http.StatusOK, http.MethodGet, "/generations", nil)), &shown))
	var results []string
	for _, g := range shown.Data {
		results = append(results, g.Result)
	}
	return results
}

func (a *administered) awaitRefusal() {
	a.t.Helper()
	poll.WaitOn(a.t, func(poll.LogT) poll.Result {
		if results := a.results(); results[0] != "refused" {
			return poll.Continue("%v", results)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(20*time.Millisecond))
}

// awaitThird waits until the tenant of the file's third block is let in, or is not.
func (a *administered) awaitThird(want bool) {
	a.t.Helper()
	poll.WaitOn(a.t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Equal(a.lets("third-token"), want))
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
}

// Tenants come and go while a provider is started that never becomes well, whoever has
// asked for that, and by which way.
func TestTenantsDoNotWaitForAProviderThatHangs(t *testing.T) {
	t.Run("an administrator's", func(t *testing.T) {
		a := startAdministered(t)
		gone := a.tenant("gone")
		change := a.begin(hanging)
		began := time.Now()
		fresh := a.tenant("fresh")
		assert.Assert(t, a.lets(fresh))
		a.must(http.StatusOK, http.MethodDelete, "/tenants/gone", nil)
		assert.Assert(t, !a.lets(gone))
		t.Logf("both took %v", time.Since(began))
		block := thirdTenant()
		a.edit(func(text string) string { return text + block })
		a.awaitThird(true)
		a.edit(without(block))
		a.awaitThird(false)
		change.goesOn(t)
		second := make(chan struct{}) // which waits for the first
		go func() {
			defer close(second)
			_, _, _ = a.do(t.Context(), http.MethodPost, "/config", map[string]any{"provider": "mock", "config": map[string]any{"persist": true}})
		}()
		a.must(http.StatusOK, http.MethodDelete, "/tenants/fresh", nil)
		assert.Assert(t, !a.lets(fresh))
		change.goesOn(t)
		select {
		case <-second:
			t.Fatal("two start providers at once")
		default:
		}
		assert.NilError(t, a.stop())
		<-second
	})
	t.Run("one in the file", func(t *testing.T) {
		a := startAdministered(t)
		gone, block := a.tenant("gone"), thirdTenant()
		a.edit(configures(hanging))
		a.awaitProcesses(2)
		a.edit(func(text string) string { return text + block })
		a.awaitThird(true)
		a.must(http.StatusOK, http.MethodDelete, "/tenants/gone", nil)
		assert.Assert(t, !a.lets(gone))
		a.edit(without(block))
		a.awaitThird(false)
		fresh := a.tenant("fresh")
		assert.Assert(t, a.lets(fresh))
		a.awaitProcesses(2) // it is started still, and once

		// Taken back, it is given up.
		a.edit(func(text string) string {
			return strings.Replace(text, fmt.Sprintf("  on_configure = %q\n", hanging), "", 1)
		})
		a.awaitProcesses(1)
		assert.Assert(t, a.lets(fresh) && !a.lets(gone))
	})
}

// What is asked for beside a change of a provider is part of what comes in force with it.
func TestAProviderTakesOverBesideOtherChanges(t *testing.T) {
	t.Run("an administrator's", func(t *testing.T) {
		a := startAdministered(t)
		change := a.begin(slow)
		fresh := a.tenant("fresh")
		change.goesOn(t)
		<-change.answered
		assert.Equal(t, change.status, http.StatusOK, change.text)
		assert.Assert(t, a.lets(fresh))
		text, err := os.ReadFile(a.file)
		assert.NilError(t, err)
		assert.Assert(t, is.Contains(string(text), `tenant "fresh"`))
		assert.Assert(t, is.Contains(string(text), "delay"))
		a.awaitProcesses(1)
		assert.Assert(t, !strings.Contains(a.must(http.StatusOK, http.MethodGet, "/config", nil), `"differs":true`))
	})
	t.Run("one in the file", func(t *testing.T) {
		a := startAdministered(t)
		gone := a.tenant("gone")
		a.edit(configures(slow))
		a.awaitProcesses(2)
		a.must(http.StatusOK, http.MethodDelete, "/tenants/gone", nil)
		assert.Assert(t, !a.lets(gone))
		a.awaitProcesses(1) // the new one
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			return poll.Compare(is.Contains(a.must(http.StatusOK, http.MethodGet, "/config", nil), "delay"))
		}, poll.WithTimeout(2*time.Minute))
		assert.Assert(t, !a.lets(gone))
		assert.Assert(t, !strings.Contains(a.must(http.StatusOK, http.MethodGet, "/config", nil), `"differs":true`))
	})
}

// A provider that was refused is in nobody's way, and stays refused.
func TestWhatIsBesideARefusedProviderComesInForce(t *testing.T) {
	a := startAdministered(t)
	gone := a.tenant("gone")
	a.edit(configures(wrong))
	a.awaitRefusal()
	a.must(http.StatusOK, http.MethodDelete, "/tenants/gone", nil)
	assert.Assert(t, !a.lets(gone))
	assert.Assert(t, is.Contains(a.must(http.StatusOK, http.MethodGet, "/config", nil), `"differs":true`))

	block := thirdTenant()
	a.edit(func(text string) string { return text + block })
	a.awaitThird(true)
	a.awaitRefusal() // it was tried again, since the file is another
	assert.Assert(t, a.lets("third-token"))

	// Both at once are one change.
	a.edit(func(text string) string {
		return without(block)(strings.Replace(text, "is wrong", "is wrong still", 1))
	})
	a.awaitRefusal()
	assert.Assert(t, a.lets("third-token"))
	a.awaitProcesses(1)
}

// What is saved while the broker starts is not seen by the watcher, which begins later.
func TestTheFilesAreReadAgainWhenTheyAreWatched(t *testing.T) {
	a := startAdministered(t)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Equal(a.loads.Load(), int32(1)))
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
}

// Files that change providers and tenants are one change, however often they are read.
func TestTheSameFilesReadAgainAreOneChange(t *testing.T) {
	block := thirdTenant()
	with := func(configure string) func(string) string {
		return func(text string) string { return configures(configure)(text) + block }
	}
	t.Run("while a provider is started", func(t *testing.T) {
		a := startAdministered(t)
		before := len(a.results())
		a.edit(with(slow))
		a.awaitProcesses(2)
		a.must(http.StatusOK, http.MethodPost, "/reload", map[string]any{})
		assert.Assert(t, a.lets("third-token"))
		assert.DeepEqual(t, a.results()[:len(a.results())-before], []string{"applied"})
	})
	t.Run("after it was refused", func(t *testing.T) {
		a := startAdministered(t)
		a.edit(with(wrong))
		a.awaitRefusal()
		a.must(http.StatusBadRequest, http.MethodPost, "/reload", map[string]any{})
		assert.Assert(t, !a.lets("third-token"))
	})
}

// Whoever changes a tenant does so as often as they like, all of them at once.
func TestAllChangesOfManyAdministratorsAreMade(t *testing.T) {
	a := startAdministered(t)
	change := a.begin(slow)
	var all sync.WaitGroup
	tokens := make([]string, 8)
	for i := range tokens {
		all.Go(func() {
			status, text, err := a.do(t.Context(), http.MethodPost, "/tenants", map[string]any{"name": fmt.Sprint("t", i)})
			var made struct{ Token string }
			if assert.Check(t, err) && assert.Check(t, is.Equal(status, http.StatusCreated), text) && assert.Check(t, json.Unmarshal([]byte(text), &made)) {
				tokens[i] = made.Token
			}
		})
	}
	all.Wait()
	<-change.answered
	assert.Equal(t, change.status, http.StatusOK, change.text)
	for _, token := range tokens {
		assert.Check(t, a.lets(token))
	}
}
