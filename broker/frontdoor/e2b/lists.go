package e2b

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
)

// listRunning is the list of clients of long ago: all that run, at once.
func (d *Door) listRunning(ctx context.Context, c rest.Call[rest.None]) (int, []listedSandbox, error) {
	query, err := url.ParseQuery(c.RawQuery)
	if err != nil {
		return 0, nil, refused("query", "is malformed")
	}
	labels, err := metadataOf(query.Get("metadata"))
	if err != nil {
		return 0, nil, err
	}
	all, err := d.sandboxes(ctx, c, labels)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, slices.DeleteFunc(all, func(s listedSandbox) bool { return s.State != stateRunning }), nil
}

// sandboxes are the tenant's, the newest first.
func (d *Door) sandboxes(ctx context.Context, c rest.Call[rest.None], labels map[string]string) ([]listedSandbox, error) {
	page, err := d.instances.ListEverywhere(ctx, c.Tenant, instance.ListRequest{Labels: labels, FrontDoor: Name})
	if err != nil {
		return nil, err
	}
	all := []listedSandbox{}
	for _, info := range page.Instances {
		all = append(all, listedOf(info))
	}
	slices.SortFunc(all, newestFirst)
	return all, nil
}

func newestFirst(a, b listedSandbox) int {
	return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.SandboxID, b.SandboxID))
}

// maxPage is how many a page of a list has at most, and unless asked for less.
const maxPage = 100

// list shows the tenant's sandboxes, in pages.
func (d *Door) list(ctx context.Context, c rest.Call[rest.None]) (int, []listedSandbox, error) {
	query, err := url.ParseQuery(c.RawQuery)
	if err != nil {
		return 0, nil, refused("query", "is malformed")
	}
	labels, err := metadataOf(query.Get("metadata"))
	if err != nil {
		return 0, nil, err
	}
	limit := maxPage
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			return 0, nil, refused("limit", "must be a number from 1 to %d", maxPage)
		}
	}
	keep, err := filterOf(query)
	if err != nil {
		return 0, nil, err
	}
	all, err := d.sandboxes(ctx, c, labels)
	if err != nil {
		return 0, nil, err
	}
	all = slices.DeleteFunc(all, func(s listedSandbox) bool { return !keep(s) })
	if wanted := statesOf(query); len(wanted) == 0 || slices.Contains(wanted, stateRunning) {
		c.SetHeader("X-Total-Running", strconv.Itoa(runningOf(all)))
	}
	switch query.Get("order") {
	case "", "desc":
	case "asc":
		slices.Reverse(all)
	default:
		return 0, nil, refused("order", "must be asc or desc")
	}
	from := 0
	if token := query.Get("nextToken"); token != "" {
		last, err := placeOf(token)
		if err != nil {
			return 0, nil, err
		}
		// The one after it, or, if it has ended since, where it would be.
		from, _ = slices.BinarySearchFunc(all, last, func(s, last listedSandbox) int {
			order := newestFirst(s, last)
			if query.Get("order") == "asc" {
				order = -order
			}
			return cmp.Or(order, -1)
		})
	}
	page := all[from:min(from+limit, len(all))]
	if from+limit < len(all) {
		last := page[len(page)-1]
		c.SetHeader("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(last.StartedAt.Format(time.RFC3339Nano)+placeSeparator+last.SandboxID)))
	}
	return http.StatusOK, page, nil
}

// placeSeparator stands in a token of a page between the time and the sandbox.
const placeSeparator = "__"

// placeOf reads such a token.
func placeOf(token string) (listedSandbox, error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	at, id, found := strings.Cut(string(text), placeSeparator)
	started, timeErr := time.Parse(time.RFC3339Nano, at)
	if err != nil || !found || timeErr != nil {
		return listedSandbox{}, refused("nextToken", "is not one that a list has answered")
	}
	return listedSandbox{StartedAt: started, SandboxID: id}, nil
}

// statesOf are those that a list is asked for; none for all.
func statesOf(query url.Values) (states []string) {
	for _, value := range query["state"] {
		states = append(states, strings.Split(value, ",")...)
	}
	return states
}

func runningOf(all []listedSandbox) (n int) {
	for _, s := range all {
		if s.State == stateRunning {
			n++
		}
	}
	return n
}

// filterOf reads by what else a list is filtered.
func filterOf(query url.Values) (func(listedSandbox) bool, error) {
	states := statesOf(query)
	for _, state := range states {
		if state != stateRunning && state != statePaused {
			return nil, refused("state", "must be running, paused or both")
		}
	}
	var after time.Time
	if text := query.Get("startedAfter"); text != "" {
		var err error
		if after, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, refused("startedAfter", "must be a time as RFC 3339 has it")
		}
	}
	template := query.Get("template")
	return func(s listedSandbox) bool {
		return (len(states) == 0 || slices.Contains(states, s.State)) && !s.StartedAt.Before(after) && (template == "" || s.TemplateID == template)
	}, nil
}

// metadataOf reads what a list is to be filtered by: pairs whose names and values are
// encoded once more than the query is.
func metadataOf(text string) (map[string]string, error) {
	malformed := refused("metadata", "must be written as key=value&key2=value2, each key once")
	text, err := url.QueryUnescape(text)
	if err != nil {
		return nil, malformed
	}
	labels := map[string]string{}
	for pair := range strings.SplitSeq(text, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, nameErr := url.QueryUnescape(name)
		value, valueErr := url.QueryUnescape(value)
		if _, twice := labels[name]; nameErr != nil || valueErr != nil || name == "" || twice {
			return nil, malformed
		}
		labels[name] = value
	}
	return labels, nil
}
