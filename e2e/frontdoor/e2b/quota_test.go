package e2b_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// room is how many sandboxes a tenant may have, and crowd how many are asked for at once.
const (
	room  = 20
	crowd = 1000
)

// limited starts a broker whose provider is an account in a cloud that runs no code and
// writes down what it has made and ended. A tenant may have so many sandboxes, and a
// creation waits so long.
func limited(t *testing.T, instances int, wait string) (*harness.Broker, *cloud.Cloud) {
	t.Helper()
	account, err := cloud.Start(cloud.Options{Name: "cloud", Address: "127.0.0.1:0"})
	assert.NilError(t, err)
	t.Cleanup(account.Close)
	const unlimited = "quota { max_concurrent = 10000 }\n"
	assert.Assert(t, is.Contains(harness.Tenants, unlimited))
	return harness.Start(t, harness.Options{
		Config: strings.Replace(harness.Tenants, unlimited, fmt.Sprintf("quota { max_instances = %d }\n", instances), 1) +
			fmt.Sprintf("metrics {\n  listen = \"127.0.0.1:0\"\n}\nlimits {\n  max_wait = \"1h\"\n}\nprovider \"cloud\" {\n  endpoint = %q\n}\nfront_door \"e2b\" {\n  wait = %q\n}\n", account.URL(), wait),
		Plugins: map[string]string{"cloud": binaries.BuildCloud(t)},
	}), account
}

// created is the answer to a creation.
type created struct {
	status     int
	retryAfter string
	SandboxID  string
	ErrorCode  string `json:"error_code"`
}

// program is a client that has connections of its own.
type program struct {
	url  string
	http *http.Client
	// key is the Idempotency-Key of its creations; none if empty.
	key string
}

func newProgram(b *harness.Broker) program {
	return program{url: b.URL + "/e2b", http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: crowd}}}
}

// do sends a request as E2B's SDK does, and returns the status and the header of the answer.
func (p program) do(ctx context.Context, method, path, body string, into any) (int, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("X-API-Key", harness.Token)
	req.Header.Set("Content-Type", "application/json")
	if p.key != "" && method == http.MethodPost {
		req.Header.Set("Idempotency-Key", p.key)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && len(text) > 0 && into != nil {
		err = json.Unmarshal(text, into)
	}
	return resp.StatusCode, resp.Header, err
}

func (p program) create(ctx context.Context) (c created, err error) {
	status, header, err := p.do(ctx, http.MethodPost, "/v2/sandboxes", `{"templateID":"base","timeout":3600,"secure":true,"allow_internet_access":true,"autoPause":false}`, &c)
	c.status, c.retryAfter = status, header.Get("Retry-After")
	return c, err
}

func (p program) kill(ctx context.Context, id string) error {
	status, _, err := p.do(ctx, http.MethodDelete, "/sandboxes/"+id, "", nil)
	if err == nil && status != http.StatusNoContent {
		err = fmt.Errorf("kill %s: %d", id, status)
	}
	return err
}

// lived returns how many there have been in the cloud, and the most at one moment. Nobody's
// name is used twice.
func lived(t *testing.T, account *cloud.Cloud) (all, most int) {
	t.Helper()
	names, now := map[string]bool{}, 0
	for _, e := range account.Effects() {
		switch e.Kind {
		case cloud.Created:
			assert.Check(t, !names[e.Instance.ID], e.Instance.ID)
			names[e.Instance.ID] = true
			now++
			most = max(most, now)
		case cloud.Gone:
			now--
		}
	}
	return len(names), most
}

// nothingLeft waits until there is no sandbox, neither in the cloud nor in the quota nor in
// the list, and nobody who waits for one.
func nothingLeft(t *testing.T, b *harness.Broker, account *cloud.Cloud) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if alive := account.Alive(); len(alive) > 0 {
			return poll.Continue("there are still %d in the cloud", len(alive))
		}
		if used := frontdoor.Metric(t, b, `sandbox_broker_quota_used{limit="max_instances",tenant="acme"}`); used != 0 {
			return poll.Continue("%v are counted", used)
		}
		if wait := frontdoor.Metric(t, b, waiting); wait != 0 {
			return poll.Continue("%v wait", wait)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(50*time.Millisecond))
	var list []created
	status, _, err := newProgram(b).do(t.Context(), http.MethodGet, "/v2/sandboxes?state=running,paused", "", &list)
	assert.NilError(t, err)
	assert.Equal(t, status, http.StatusOK)
	assert.Check(t, is.Len(list, 0))
}

const waiting = `sandbox_broker_quota_waiting{tenant="acme"}`

// awaitWaiting waits until so many requests wait for their turn.
func awaitWaiting(t *testing.T, b *harness.Broker, n int) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if now := frontdoor.Metric(t, b, waiting); now != float64(n) {
			return poll.Continue("%v wait", now)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(50*time.Millisecond))
}

func TestAThousandSandboxesAtOnceAreMadeInTurn(t *testing.T) {
	tier.Full(t)
	b, account := limited(t, room, "1h")
	client := newProgram(b)
	defer client.http.CloseIdleConnections()
	begin := make(chan struct{})
	ids := make(chan string, crowd)
	var group sync.WaitGroup
	for range crowd {
		group.Go(func() {
			made, err := client.create(t.Context())
			if !assert.Check(t, err) || !assert.Check(t, made.status == http.StatusCreated, "%+v", made) {
				return
			}
			ids <- made.SandboxID
			<-begin
			assert.Check(t, client.kill(t.Context(), made.SandboxID))
		})
	}
	awaitWaiting(t, b, crowd-room)
	assert.Check(t, is.Len(account.Alive(), room))
	began := time.Now()
	close(begin)
	group.Wait()
	t.Logf("the other %d were made and ended in %s", crowd-room, time.Since(began).Round(time.Millisecond))
	close(ids)
	distinct := map[string]bool{}
	for id := range ids {
		distinct[id] = true
	}
	assert.Check(t, is.Len(distinct, crowd))
	nothingLeft(t, b, account)
	all, most := lived(t, account)
	assert.Check(t, is.Equal(all, crowd))
	assert.Check(t, is.Equal(most, room))
}

func TestAThousandSandboxesAtOnceAreRefusedAboveTheQuota(t *testing.T) {
	for _, wait := range []string{"0s", "1s"} {
		t.Run("after "+wait, func(t *testing.T) {
			b, account := limited(t, room, wait)
			client := newProgram(b)
			defer client.http.CloseIdleConnections()
			answers := make(chan created, crowd)
			var group sync.WaitGroup
			for range crowd {
				group.Go(func() {
					made, err := client.create(t.Context())
					assert.Check(t, err)
					answers <- made
				})
			}
			group.Wait()
			close(answers)
			var ids []string
			for made := range answers {
				if made.status == http.StatusCreated {
					ids = append(ids, made.SandboxID)
					continue
				}
				assert.Check(t, made.status == http.StatusTooManyRequests && made.ErrorCode == "SB008", "%+v", made)
				seconds, err := strconv.Atoi(made.retryAfter)
				assert.Check(t, err == nil && seconds > 0, "%+v", made)
			}
			assert.Check(t, is.Len(ids, room))
			assert.Check(t, is.Len(account.Alive(), room))
			for _, id := range ids {
				assert.Check(t, client.kill(t.Context(), id))
			}
			nothingLeft(t, b, account)
			all, most := lived(t, account)
			assert.Check(t, is.Equal(all, room))
			assert.Check(t, is.Equal(most, room))
			again, err := client.create(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, again.status, http.StatusCreated, "there is room again")
			assert.NilError(t, client.kill(t.Context(), again.SandboxID))
			nothingLeft(t, b, account)
		})
	}
}

func TestAClientThatIsKilledInTheMiddleOfACreationLeavesNothing(t *testing.T) {
	dir := client(t)
	for name, test := range map[string]struct {
		// before makes that the creation takes a while, and begun waits until it has begun.
		before func(t *testing.T, b *harness.Broker, account *cloud.Cloud)
		begun  func(t *testing.T, b *harness.Broker, account *cloud.Cloud)
		after  func(t *testing.T, b *harness.Broker, account *cloud.Cloud)
	}{
		"while the cloud has made the sandbox and does not say so": {
			before: func(_ *testing.T, _ *harness.Broker, account *cloud.Cloud) {
				account.LieOnce("create", cloud.HangAfter)
			},
			begun: func(t *testing.T, _ *harness.Broker, account *cloud.Cloud) { t.Helper(); awaitAlive(t, account) },
		},
		"while the cloud makes the sandbox slowly": {
			before: func(_ *testing.T, _ *harness.Broker, account *cloud.Cloud) {
				account.SetLies(cloud.Lies{Slow: 4 * time.Second})
			},
			begun: func(t *testing.T, _ *harness.Broker, account *cloud.Cloud) { t.Helper(); awaitAlive(t, account) },
		},
		"while the creation waits for its turn": {
			before: func(t *testing.T, b *harness.Broker, _ *cloud.Cloud) {
				t.Helper()
				made, err := newProgram(b).create(t.Context())
				assert.NilError(t, err)
				assert.Equal(t, made.status, http.StatusCreated)
			},
			begun: func(t *testing.T, b *harness.Broker, _ *cloud.Cloud) { t.Helper(); awaitWaiting(t, b, 1) },
			after: func(t *testing.T, b *harness.Broker, account *cloud.Cloud) {
				t.Helper()
				assert.NilError(t, newProgram(b).kill(t.Context(), account.Alive()[0].Labels[sdk.LabelInstance]))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, account := limited(t, 1, "1h")
			test.before(t, b, account)
			cmd := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e", `
				import { Sandbox } from "e2b";
				await Sandbox.create({ timeoutMs: 5000, requestTimeoutMs: 240_000 });`)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "E2B_API_KEY="+harness.Token, "E2B_API_URL="+b.URL+"/e2b", "E2B_VALIDATE_API_KEY=false")
			assert.NilError(t, cmd.Start())
			test.begun(t, b, account)
			assert.NilError(t, cmd.Process.Kill())
			assert.ErrorContains(t, cmd.Wait(), "killed")
			if test.after != nil {
				test.after(t, b, account)
			}
			nothingLeft(t, b, account)
		})
	}
}

func awaitAlive(t *testing.T, account *cloud.Cloud) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if len(account.Alive()) == 0 {
			return poll.Continue("nothing was made")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
}

func TestACreationThatFailedHalfWayIsAskedForAgain(t *testing.T) {
	b, account := limited(t, 1, "0s")
	client := newProgram(b)
	for name, test := range map[string]struct {
		key string
		// made is how many sandboxes there have been in the cloud by the end.
		made int
	}{
		"with a key it goes on where it ended":   {key: "a-key", made: 1},
		"without one there is another beginning": {made: 2},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := lived(t, account)
			client.key = test.key
			account.LieOnce("mkdir", cloud.FailBefore) // of the home
			failed, err := client.create(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, failed.status, http.StatusServiceUnavailable)
			made, err := client.create(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, made.status, http.StatusCreated, made.ErrorCode)
			after, most := lived(t, account)
			assert.Check(t, is.Equal(after-before, test.made))
			assert.Check(t, is.Equal(most, 1))
			assert.NilError(t, client.kill(t.Context(), made.SandboxID))
			nothingLeft(t, b, account)
		})
	}
}
