// Starts Swagger UI with the platform's schema.

const place = document.getElementById("reference");

window.SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  deepLinking: true,
  persistAuthorization: false,
  defaultModelsExpandDepth: 0,
  requestInterceptor(request) { // "Try it out" uses the user's session
    request.headers["X-CSRFToken"] = document.querySelector("[name=csrfmiddlewaretoken]").value;
    return request;
  },
  presets: [window.SwaggerUIBundle.presets.apis],
});
