package v1

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics/history"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// History is how the broker was lately; history.Recorder is it.
type History interface {
	Window(points int) history.Window
}

// Of the time that is shown, in minutes.
const (
	defaultHistory = 15
	longestHistory = 60
)

// adminHistoryRoutes are for administrators.
type adminHistoryRoutes struct{ history History }

func (h adminHistoryRoutes) register(a *rest.API) {
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: pathAdmin + "/history", ID: "adminGetHistory", Tag: tagAdmin, Admin: true,
		Summary: "How the broker was lately",
		Details: "A point each ten seconds, kept in memory for an hour: it begins anew with the broker. Probes of its health do not count as requests.",
		Query:   []rest.Parameter{{Name: "minutes", Kind: rest.Integer, Least: 1, Most: longestHistory, Doc: "How far back; 15 unless given."}},
		Success: []int{http.StatusOK},
	}, h.get)
}

func (h adminHistoryRoutes) get(_ context.Context, c rest.Call[rest.None]) (int, client.AdminHistory, error) {
	minutes := time.Duration(c.Query.Integer("minutes", defaultHistory)) * time.Minute
	answer := client.AdminHistory{StepSeconds: history.Step.Seconds(), Series: []client.AdminHistorySeries{}}
	if h.history == nil {
		answer.To = time.Now().UTC()
		answer.From = answer.To
		return http.StatusOK, answer, nil
	}
	window := h.history.Window(int(minutes / history.Step))
	answer.From, answer.To = window.From.UTC(), window.To.UTC()
	for _, s := range window.Series {
		shown := client.AdminHistorySeries{Name: s.Name, Label: s.Label, Unit: s.Unit, Points: make([]*float64, len(s.Points))}
		for i, point := range s.Points {
			if !math.IsNaN(point) {
				shown.Points[i] = new(math.Round(point*1e6) / 1e6)
			}
		}
		answer.Series = append(answer.Series, shown)
	}
	return http.StatusOK, answer, nil
}
