package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

// perSecond is the constant rate of requests.
const perSecond = 5000

// mockHello is "run" by the mock provider: it prints the code.
var mockHello = program{"python", "python", "1", "1"}

// measureOverhead sends executions to the mock provider at a constant rate, in
// turn through the broker's REST API and to a plugin of its own over gRPC.
func measureOverhead(ctx context.Context, l lab, count int) (lines []line, err error) {
	m, err := startMock(ctx, l, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, m) }()
	e := entry{
		row: "overhead", what: fmt.Sprintf("an execution at a constant %d requests a second, mock provider, client and servers on the same CPUs", perSecond),
		beside: &side{"the same over gRPC to the plugin", steady(perSecond, m.plugin.execute)},
		claims: []claim{difference(p50).atMost(0.4), difference(p99).atMost(3)},
	}
	for _, d := range m.brokers {
		do, err := d.requests()
		if err != nil {
			return nil, err
		}
		e.ours = append(e.ours, &side{"broker", steady(perSecond, do)})
	}
	return contest{turns: manyTurns, warm: perSecond}.run(ctx, count, []entry{e})
}

// mocked are brokers with the mock provider, and a plugin without a broker.
type mocked struct {
	dir     string // with the executable of the plugin, and no other
	brokers daemons
	plugin  *mockPlugin
}

// startMock starts them. The caller owes a stop.
func startMock(ctx context.Context, l lab, config string) (m *mocked, err error) {
	m = &mocked{}
	if m.dir, err = buildMock(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = joinStop(err, m)
		}
	}()
	if m.brokers, err = l.startWith(ctx, func(build) string { return m.dir }, "provider \"mock\" {}\n"+config); err != nil {
		return nil, err
	}
	if m.plugin, err = startPlugin(ctx, filepath.Join(m.dir, mockName)); err != nil {
		return m, err
	}
	return m, nil
}

func (m *mocked) stop() error {
	err := m.brokers.stop()
	if m.plugin != nil {
		err = errors.Join(err, m.plugin.stop())
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

// requests returns a function that executes code in an instance made now.
func (d *daemon) requests() (func() error, error) {
	id, err := d.create(mockHello.template)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(mockHello.request())
	if err != nil {
		return nil, err
	}
	path, expected := "/api/v1/instances/"+id+"/execute", []byte(`"stdout":"1"`)
	return func() error {
		status, answer, err := d.do(http.MethodPost, path, body)
		if err != nil {
			return err
		}
		if status != http.StatusOK || !bytes.Contains(answer, expected) {
			return fmt.Errorf("HTTP %d: %s", status, answer)
		}
		return nil
	}, nil
}
