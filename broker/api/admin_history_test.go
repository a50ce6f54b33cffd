package api_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics/history"
)

// recorded is a history of as many points as it was asked for.
type recorded struct{ asked int }

func (r *recorded) Window(points int) history.Window {
	r.asked = points
	return history.Window{
		From: then.Add(-history.Step), To: then,
		Series: []history.Series{
			{Name: "requests", Label: "ok", Unit: "1/s", Points: []float64{0, 1.5}},
			{Name: "cost", Unit: "unit", Points: []float64{math.NaN(), math.NaN()}},
		},
	}
}

func TestAnAdministratorSeesHowTheBrokerWas(t *testing.T) {
	past := &recorded{}
	f := start(t, withAdmin, func(o *api.Options, _ *fixture) { o.History = past })
	assert.Equal(t, f.asAdmin(http.MethodGet, "/history", "").wants(http.StatusOK).text,
		`{"step_seconds":10,"from":"`+then.Add(-history.Step).UTC().Format(time.RFC3339)+`","to":"`+then.UTC().Format(time.RFC3339)+`","series":[`+
			`{"name":"requests","label":"ok","unit":"1/s","points":[0,1.5]},{"name":"cost","label":"","unit":"unit","points":[null,null]}]}`)
	assert.Equal(t, past.asked, 90)
	f.asAdmin(http.MethodGet, "/history?minutes=60", "").wants(http.StatusOK)
	assert.Equal(t, past.asked, 360)
	for _, minutes := range []string{"0", "61", "x", ""} {
		f.asAdmin(http.MethodGet, "/history?minutes="+minutes, "").problem(http.StatusUnprocessableEntity, "SB010")
	}
	f.do(http.MethodGet, adminPath+"/history", "").problem(http.StatusForbidden, "SB012")
}
