package model_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/nemesis/model"
)

const patience = time.Minute

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is a moment, in seconds.
func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

// op is an operation between two moments.
func op(kind model.Kind, outcome model.Outcome, id string, call, back float64) model.Operation {
	return model.Operation{Kind: kind, Outcome: outcome, ID: id, Call: at(call), Return: at(back)}
}

const (
	create, look, destroy = model.Create, model.Look, model.Destroy
	done, absent, unknown = model.Done, model.Absent, model.Unknown
)

var truth = model.Truth{
	Owners:  map[string]string{"x": "a", "y": "b", "z": "b"},
	Windows: []model.Window{{Broker: "a", From: at(10), To: at(20)}},
}

func TestSessions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		history model.History
		bad     bool
	}{
		"it has one instance":                 {model.History{op(create, done, "x", 0, 1), op(create, done, "x", 2, 3), op(look, done, "x", 4, 5)}, false},
		"it has two":                          {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 2, 3)}, true},
		"two who ask at once are told of two": {model.History{op(create, done, "x", 0, 3), op(create, done, "y", 1, 2)}, true},
		"it ends and begins anew":             {model.History{op(create, done, "x", 0, 1), op(destroy, done, "x", 2, 3), op(create, done, "y", 4, 5)}, false},
		"it ends at some moment":              {model.History{op(create, done, "x", 0, 1), op(destroy, done, "x", 2, 9), op(look, done, "x", 3, 4), op(look, absent, "x", 5, 6)}, false},
		"it comes back":                       {model.History{op(create, done, "x", 0, 1), op(destroy, done, "x", 2, 9), op(look, absent, "x", 3, 4), op(look, done, "x", 5, 6)}, true},
		"an instance comes back":              {model.History{op(create, done, "x", 0, 1), op(destroy, done, "x", 2, 3), op(create, done, "x", 4, 5)}, true},
		"it is lost":                          {model.History{op(create, done, "y", 0, 1), op(look, absent, "y", 2, 3)}, true},
		"a creation without an answer": {model.History{
			op(create, unknown, "", 0, 1), op(create, done, "x", 2, 3), op(create, done, "x", 4, 5),
		}, false},
		"one that is late": {model.History{
			op(create, unknown, "", 0, 1), op(create, done, "x", 2, 3), op(destroy, done, "x", 4, 5), op(create, done, "y", 6, 7),
		}, false},
		"one makes no second one": {model.History{
			op(create, unknown, "", 0, 1), op(create, done, "x", 2, 3), op(create, done, "y", 4, 5),
		}, true},
		"an end without an answer":         {model.History{op(create, done, "x", 0, 1), op(destroy, unknown, "x", 2, 3), op(look, done, "x", 4, 5), op(look, absent, "x", 6, 7)}, false},
		"an end that was not asked for":    {model.History{op(create, done, "x", 0, 1), op(look, absent, "x", 6, 7), op(destroy, unknown, "x", 8, 9)}, true},
		"its owner dies":                   {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 12, 13)}, false},
		"its owner dies late":              {model.History{op(create, done, "x", 0, 1), op(create, done, "x", 12, 13), op(create, done, "y", 14, 15)}, false},
		"its owner was not dead yet":       {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 2, 9)}, true},
		"its owner lived again":            {model.History{op(create, done, "x", 0, 1), op(create, done, "x", 21, 22), op(create, done, "y", 23, 24)}, true},
		"another owner was dead":           {model.History{op(create, done, "y", 0, 1), op(create, done, "z", 12, 13)}, true},
		"a dead owner shows what it had":   {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 12, 13), op(look, done, "x", 14, 15)}, false},
		"a dead owner tells of a session":  {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 12, 13), op(create, done, "x", 14, 15)}, true},
		"a dead owner runs code":           {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 12, 13), op(model.Use, done, "x", 14, 15)}, true},
		"it tells that when it is back":    {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 12, 13), op(look, done, "x", 21, 22)}, true},
		"a dead owner's is told as absent": {model.History{op(create, done, "x", 0, 1), op(look, absent, "x", 12, 13), op(look, done, "x", 21, 22)}, false},
		"a living owner's is not":          {model.History{op(create, done, "y", 0, 1), op(look, absent, "y", 12, 13), op(look, done, "y", 21, 22)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, truth.Session(test.history, patience), verdict(test.bad))
		})
	}
}

func verdict(bad bool) porcupine.CheckResult {
	if bad {
		return porcupine.Illegal
	}
	return porcupine.Ok
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	const full = model.Full
	for name, test := range map[string]struct {
		history model.History
		bad     bool
	}{
		"as many as there may be":        {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 0, 1), op(create, full, "", 2, 3)}, false},
		"one too many":                   {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 0, 1), op(create, done, "z", 2, 3)}, true},
		"refused although there is room": {model.History{op(create, done, "y", 0, 1), op(create, full, "", 2, 3)}, true},
		"refused beside others":          {model.History{op(create, done, "y", 0, 1), op(create, full, "", 2, 5), op(create, full, "", 3, 4)}, false},
		"one ends":                       {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 0, 1), op(destroy, done, "x", 2, 3), op(create, done, "z", 4, 5)}, false},
		"one ends meanwhile":             {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 0, 1), op(destroy, done, "x", 2, 9), op(create, done, "z", 4, 5)}, false},
		"one may have ended":             {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 0, 1), op(destroy, unknown, "x", 2, 3), op(create, done, "z", 4, 5)}, false},
		"one may be there":               {model.History{op(create, done, "y", 0, 1), op(create, unknown, "", 2, 3), op(create, full, "", 4, 5)}, false},
		"its owner dies":                 {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 0, 1), op(create, done, "z", 12, 13)}, false},
		"its owner comes back":           {model.History{op(create, done, "x", 0, 1), op(create, done, "y", 0, 1), op(create, done, "z", 12, 13), op(create, full, "", 21, 22)}, false},
		"another owner was dead":         {model.History{op(create, done, "w", 0, 1), op(create, done, "y", 0, 1), op(create, done, "z", 12, 13)}, true},
		"one is lost":                    {model.History{op(create, done, "y", 0, 1), op(destroy, absent, "y", 2, 3)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, truth.Quota(test.history, 2, patience), verdict(test.bad))
		})
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	ask := func(outcome model.Outcome, answer string, call, back float64) model.Operation {
		return model.Operation{Kind: model.Ask, Outcome: outcome, Answer: answer, Call: at(call), Return: at(back)}
	}
	for name, test := range map[string]struct {
		history model.History
		bad     bool
	}{
		"one answer":         {model.History{ask(unknown, "", 0, 1), ask(done, "1", 2, 3), ask(done, "1", 12, 25)}, false},
		"two answers":        {model.History{ask(done, "1", 2, 3), ask(done, "2", 4, 5)}, true},
		"two at once":        {model.History{ask(done, "1", 2, 5), ask(done, "2", 3, 4)}, true},
		"its owner has died": {model.History{ask(done, "1", 2, 3), ask(done, "2", 12, 13)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, truth.Key(test.history, patience), verdict(test.bad))
		})
	}
}
