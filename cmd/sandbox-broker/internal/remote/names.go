package remote

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// instanceNamed finds the instance that a person means: by its ID, by its session, or by the
// beginning of the last part of its ID, as ps shows it.
func instanceNamed(ctx context.Context, broker *client.Client, name string) (id string, err error) {
	if name == "" {
		return "", usageErrorf("name an instance: sandbox-broker ps lists them")
	}
	if strings.Count(name, ":") == 2 {
		return name, nil
	}
	all, err := allInstances(ctx, broker, nil)
	if err != nil {
		return "", err
	}
	var bySession, byPart []string
	for _, i := range all {
		if i.SessionID == name {
			bySession = append(bySession, i.ID)
		}
		if strings.HasPrefix(lastPart(i.ID), name) {
			byPart = append(byPart, i.ID)
		}
	}
	found := bySession
	if len(found) == 0 {
		found = byPart
	}
	switch len(found) {
	case 0:
		return "", notThere(name)
	case 1:
		return found[0], nil
	default:
		return "", fmt.Errorf("%q may be any of %s: name one by its ID", name, strings.Join(found, ", "))
	}
}

// notThere is what the broker would say of an ID that there is not.
func notThere(name string) error {
	info := sdk.CodeNotFound.Info()
	return &noInstance{name: name, Problem: client.Problem{Code: string(info.Code), Title: info.Title, Status: info.HTTPStatus}}
}

// noInstance is a name that no instance has.
type noInstance struct {
	client.Problem
	name string
}

// Error implements error.
func (n *noInstance) Error() string {
	return fmt.Sprintf("%s: no instance has the session %q, or an ID whose last part begins so", n.Code, n.name)
}

// Unwrap returns the problem.
func (n *noInstance) Unwrap() error { return &n.Problem }

func lastPart(id string) string { return id[strings.LastIndex(id, ":")+1:] }

// pageOfInstances is how many instances are asked for at once: as many as the broker gives.
const pageOfInstances = "1000"

// allInstances are those of all pages.
func allInstances(ctx context.Context, broker *client.Client, query url.Values) (all []client.Instance, err error) {
	for after := ""; ; {
		page, err := broker.Instances(ctx, paged(query, after))
		if err != nil {
			return nil, err
		}
		all = append(all, page.Instances...)
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}

// paged is a query for the page behind after.
func paged(query url.Values, after string) url.Values {
	asked := url.Values{"limit": {pageOfInstances}}
	for name, values := range query {
		asked[name] = values
	}
	if after != "" {
		asked.Set("after", after)
	}
	return asked
}
