package rest

import (
	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"
)

// Stack is Fiber's own table of routes.
func (s *Server) Stack() [][]*fiber.Route { return s.app.Stack() }

// Prefix is where the routes of the API stand.
func (a *API) Prefix() string { return a.prefix }

// OpenAPI is what the document is made of.
func (a *API) OpenAPI() *huma.OpenAPI { return a.document.openapi }
