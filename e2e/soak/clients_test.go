package soak_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

const (
	mockClients = 20
	realClients = 2
)

// clients use the broker all the time.
type clients struct {
	broker  *harness.Broker
	t       testing.TB
	ended   chan struct{}
	end     sync.Once
	running sync.WaitGroup

	mock, real, failed atomic.Int64
}

func startClients(t testing.TB, b *harness.Broker) *clients {
	t.Helper()
	c := &clients{broker: b, t: t, ended: make(chan struct{})}
	t.Cleanup(c.leave) // before the broker stops
	for i := range mockClients {
		c.running.Go(func() { c.keepOn(20*time.Millisecond, func(n int) error { return c.useMock(i, n) }, &c.mock) })
	}
	for range realClients {
		c.running.Go(func() { c.keepOn(500*time.Millisecond, c.useReal, &c.real) })
	}
	return c
}

// leave waits for the last of them.
func (c *clients) leave() {
	c.end.Do(func() { close(c.ended) })
	c.running.Wait()
}

// stop is leave, and takes back what sessions they were in.
func (c *clients) stop() {
	c.leave()
	list, err := c.instances("")
	if err != nil {
		c.t.Error(err)
	}
	for _, id := range list {
		if err := c.destroy(id); err != nil {
			c.t.Error(err)
		}
	}
}

// keepOn does something at a pace that leaves the machine to others, until stop.
func (c *clients) keepOn(pace time.Duration, do func(n int) error, done *atomic.Int64) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-c.ended:
			return
		case <-ticker.C:
		}
		if err := do(n); err != nil {
			c.failed.Add(1)
			c.t.Errorf("a request failed: %v", err)
			return
		}
		done.Add(1)
	}
}

// useMock executes in instances of its own and, every other client, in sessions
// that it takes back after a while.
func (c *clients) useMock(client, n int) error {
	request := map[string]any{"language": "mock", "code": `{"echo": true}`}
	const ofSession = 25
	session := fmt.Sprintf("client-%d-%d", client, n/ofSession)
	if client%2 == 0 {
		request["session_id"] = session
	}
	if _, err := markOf(c.broker, request); err != nil {
		return err
	}
	if client%2 == 1 || n%ofSession != ofSession-1 {
		return nil
	}
	return c.takeBack(session)
}

func (c *clients) takeBack(session string) error {
	list, err := c.instances("?session_id=" + session)
	if err != nil {
		return err
	}
	if len(list) != 1 {
		return fmt.Errorf("session %s has the instances %v", session, list)
	}
	return c.destroy(list[0])
}

// instances are those of the tenant, by ID.
func (c *clients) instances(query string) (ids []string, err error) {
	answer := c.broker.Do(http.MethodGet, "/api/v1/instances"+query, harness.Token, nil)
	var list struct{ Instances []struct{ ID string } }
	if err := json.Unmarshal(answer.Body, &list); answer.Err != nil || err != nil {
		return nil, fmt.Errorf("list instances: %d %s %w", answer.Status, answer.Body, errors.Join(answer.Err, err))
	}
	for _, i := range list.Instances {
		ids = append(ids, i.ID)
	}
	return ids, nil
}

func (c *clients) destroy(id string) error {
	answer := c.broker.Do(http.MethodDelete, "/api/v1/instances/"+id, harness.Token, nil)
	if answer.Err != nil {
		return answer.Err
	}
	if answer.Status != http.StatusNoContent {
		return fmt.Errorf("destroy an instance: %d %s", answer.Status, answer.Body)
	}
	return nil
}

func (c *clients) useReal(n int) error {
	answer := c.broker.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{
		"provider": "self_managed", "language": "python", "code": fmt.Sprintf("print(%d)", n),
	})
	if answer.Err != nil {
		return answer.Err
	}
	var e harness.Execution
	if err := json.Unmarshal(answer.Body, &e); err != nil || answer.Status != http.StatusOK || e.Stdout != fmt.Sprintf("%d\n", n) {
		return fmt.Errorf("HTTP %d: %s", answer.Status, answer.Body)
	}
	return nil
}
