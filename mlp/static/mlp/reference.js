// Starts the reference page on the platform's own schema.

const place = document.getElementById("reference");

window.SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  deepLinking: true,
  persistAuthorization: false,
  defaultModelsExpandDepth: 0,
  requestInterceptor(request) { // "Try it out" speaks for the person who is logged in
    request.headers["X-CSRFToken"] = document.querySelector("[name=csrfmiddlewaretoken]").value;
    return request;
  },
  presets: [window.SwaggerUIBundle.presets.apis],
});
